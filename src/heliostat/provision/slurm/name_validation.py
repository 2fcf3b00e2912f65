"""Validation of names for Slurm's configuration files, and expansion of ranges such as `gpu[1-4]`. Pure."""

import re

from heliostat.errors import Invalid

MAX_EXPANDED_NAMES = 1000
_RANGES = re.compile(r"([^\[\]]*)\[([0-9,-]+)\]([^\[\]]*)")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_CLUSTER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_RESERVED = ("all", "default", "localhost")  # keywords of Slurm, and a name that differs on each machine


def expand_ranges(text: str) -> tuple[str, ...]:
    """`gpu[1-3,07]` becomes gpu1, gpu2, gpu3, gpu07; a text without brackets stays as it is."""
    if "[" not in text and "]" not in text:
        return (text,)
    match = _RANGES.fullmatch(text)
    if not match:
        raise Invalid(f"{text!r} is not a valid range of names.", "Write for example gpu[1-4] or gpu[01-08,12].")
    before, ranges, after = match.groups()
    names = tuple(f"{before}{number}{after}" for part in ranges.split(",") for number in _numbers(part, text))
    if len(names) > MAX_EXPANDED_NAMES:
        raise Invalid(f"{text!r} has {len(names)} names.", f"At most {MAX_EXPANDED_NAMES} are allowed.")
    return names


def require_host_name(text: str, label: str) -> str:
    """A host name, as `hostname -s` prints it."""
    if not _HOST.fullmatch(text) or text.lower() in _RESERVED:
        hint = "Write the output of `hostname -s`: letters, digits and hyphens; not all, default or localhost."
        raise Invalid(f"{label}: {text!r} is not a valid host name.", hint)
    return text


def require_address(text: str, label: str) -> str:
    if not _ADDRESS.fullmatch(text):
        hint = "Write an IP address, or a name that all nodes can resolve."
        raise Invalid(f"{label}: {text!r} is not an address.", hint)
    return text


def require_cluster_name(text: str) -> str:
    if not _CLUSTER.fullmatch(text):
        hint = "Use lowercase letters, digits and underscores, a letter first: lab."
        raise Invalid(f"cluster: {text!r} is not a valid cluster name.", hint)
    return text


def require_partition_name(text: str) -> str:
    if not _WORD.fullmatch(text) or text.lower() in _RESERVED:
        hint = "Use letters, digits, and after the first character _ . -; not all or default."
        raise Invalid(f"partitions: {text!r} is not a valid partition name.", hint)
    return text


def require_feature(text: str, label: str) -> str:
    if not _WORD.fullmatch(text):
        hint = "Use letters, digits and _ . -. For labels such as disk=ssd set labels in [slurm] of cluster.toml."
        raise Invalid(f"{label}: {text!r} is not a valid feature.", hint)
    return text


def require_gpu_type(text: str, label: str) -> str:
    """Not a number: Slurm would read it as a count (gpu:4090)."""
    if not _WORD.fullmatch(text) or text.isdecimal():
        hint = "Use letters, digits and _ . -, at least one letter: a100, rtx4090."
        raise Invalid(f"{label}: {text!r} is not a valid GPU type.", hint)
    return text


def _numbers(part: str, text: str) -> list[str]:
    first, dash, last = part.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or len(last) > 6 or int(first) > int(last):
        raise Invalid(f"{part!r} in {text!r} is not a range.", "Write the smaller number first: 1-4.")
    if int(last) - int(first) >= MAX_EXPANDED_NAMES:
        raise Invalid(f"{text!r} has too many names.", f"At most {MAX_EXPANDED_NAMES} are allowed.")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
