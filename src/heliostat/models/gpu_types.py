"""GPU types: whole cards ("A100"), and MIG slices ("A100-1g.10gb"; on Slurm also "a100_1g.5gb" and "1g.5gb").

A slice counts as its part of the card wherever GPUs are added up: its compute slices, of all that the card has.
"""

import re
from functools import lru_cache

# As the driver names profiles: 1g.10gb, with media engines 1g.10gb+me, a compute instance in it 1c.3g.40gb.
_SLICE = re.compile(
    r"(?:(?P<card>.+)[-_])?(?P<profile>(?:(?P<compute>[1-7])c\.)?(?P<slices>[1-7])g\.(?P<gb>\d{1,4})gb)(?:[+-][\w.]+)?",
    re.IGNORECASE | re.ASCII,
)
_COMPUTE_SLICES = 7
_FEWER_COMPUTE_SLICES = {"a30": 4, "rtx-pro-6000": 4, "rtx-pro-5000": 2, "rtx-pro-4500": 2}


def is_slice(gpu_type: str | None) -> bool:
    return gpu_type is not None and _parse_slice(gpu_type) is not None


def slice_type(card: str, profile: str) -> str | None:
    """`A100-1g.10gb` for the profile `1g.10gb+me` of an A100; None: it is not a profile."""
    match = _parse_slice(profile)
    return None if match is None else f"{card}-{match['profile']}"


def slice_memory_mib(gpu_type: str) -> int | None:
    """The nominal memory of a slice; None: it is a whole card."""
    match = _parse_slice(gpu_type)
    return None if match is None else int(match["gb"]) * 1024


def card_type(gpu_type: str) -> str:
    """The type of the card that it is a part of; empty: the name of the slice does not contain it."""
    match = _parse_slice(gpu_type)
    return gpu_type if match is None else match["card"] or ""


@lru_cache(maxsize=1024)
def card_fraction(gpu_type: str | None) -> float:
    """The part of a card that such a device is: 1 for whole cards, 1/7 for an A100-1g.10gb."""
    match = _parse_slice(gpu_type or "")
    if match is None:
        return 1.0
    card = (match["card"] or "").lower().replace("_", "-")
    total = next((count for name, count in _FEWER_COMPUTE_SLICES.items() if name in card), _COMPUTE_SLICES)
    return min(1.0, int(match["compute"] or match["slices"]) / total)


def accepts_gpu_type(requested: str | None, gpu_type: str) -> bool:
    """Whether a job that requests this type, or any (None), may get such a device. A slice is only for jobs that
    name its type, so that a job never gets a seventh of the card that its user expects."""
    if requested is None:
        return not is_slice(gpu_type)
    return requested.lower() == gpu_type.lower()


@lru_cache(maxsize=1024)
def _parse_slice(gpu_type: str) -> re.Match[str] | None:
    """Cached: asked for every device of the cluster."""
    return _SLICE.fullmatch(gpu_type)
