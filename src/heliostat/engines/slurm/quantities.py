"""Sizes, times and resources as `sacct` writes them: pure. What cannot be read is None."""

import re
from collections.abc import Mapping

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([KMGTP]?)([nc]?)")
_MIB = {"": 1 / 2**20, "K": 1 / 1024, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}
_SPAN = re.compile(r"(?:(\d{1,6})-)?(?:(\d{1,6}):)?(\d{1,6}):(\d{1,2}(?:\.\d{1,6})?)")
_WHOLE = re.compile(r"\d{1,15}")
_GPUS = "gres/gpu"


def size_in_mib(text: str) -> float | None:
    """`219768K`, `500M`, `1.5G`; the `n` and `c` of older versions (of a node, of a cpu) say nothing here."""
    found = _SIZE.fullmatch(text)
    return None if found is None else float(found[1]) * _MIB[found[2]]


def span_in_seconds(text: str) -> float | None:
    """`00:02.620`, `01:02:03`, `2-00:00:00`."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups()
    return int(days or 0) * 86400 + int(hours or 0) * 3600 + int(minutes) * 60 + float(seconds)


def whole_number(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) and text.isascii() else None


def resources_in(text: str) -> dict[str, str]:
    """`billing=2,cpu=2,gres/gpu:a100=2,mem=500M` by name."""
    pairs = (word.partition("=") for word in text.split(","))
    return {name: value for name, _, value in pairs if name and value}


def gpus_in(resources: Mapping[str, str]) -> tuple[int, str | None]:
    """How many, and their type where Slurm accounts for it and there is but one."""
    typed = {
        name.partition(":")[2]: count
        for name, value in resources.items()
        if name.startswith(f"{_GPUS}:") and (count := whole_number(value))
    }
    total = whole_number(resources.get(_GPUS, "")) or sum(typed.values())
    return total, next(iter(typed)) if len(typed) == 1 else None
