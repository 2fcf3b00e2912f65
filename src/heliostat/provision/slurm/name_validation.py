"""Names as Slurm writes many at once, `gpu[1-4]`, and which of them are safe in its files. Pure."""

import re

from heliostat.errors import Invalid

MAX_EXPANDED_NAMES = 1000
_RANGES = re.compile(r"([^\[\]]*)\[([0-9,-]+)\]([^\[\]]*)")
_HOST = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_ADDRESS = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.:-]{0,251}[A-Za-z0-9])?")
_WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_CLUSTER = re.compile(r"[a-z][a-z0-9_]{0,39}")
_TAKEN = ("all", "default", "localhost")  # words of Slurm, and what is another machine on each


def expand_ranges(text: str) -> tuple[str, ...]:
    """`gpu[1-3,07]` as gpu1, gpu2, gpu3, gpu07; a text without brackets is itself."""
    if "[" not in text and "]" not in text:
        return (text,)
    found = _RANGES.fullmatch(text)
    if not found:
        raise Invalid(f"{text!r} cannot be read.", "Many at once are written like gpu[1-4] or gpu[01-08,12].")
    before, ranges, after = found.groups()
    names = tuple(f"{before}{number}{after}" for part in ranges.split(",") for number in _numbers(part, text))
    if len(names) > MAX_EXPANDED_NAMES:
        raise Invalid(f"{text!r} are {len(names)}.", f"At most {MAX_EXPANDED_NAMES} at once.")
    return names


def require_host_name(text: str, what: str) -> str:
    """The name of a machine, as `hostname -s` says it."""
    if not _HOST.fullmatch(text) or text.lower() in _TAKEN:
        hint = "Write what `hostname -s` says there: letters, digits and hyphens; not all, default or localhost."
        raise Invalid(f"{what}: {text!r} cannot be the name of a machine.", hint)
    return text


def require_address(text: str, what: str) -> str:
    if not _ADDRESS.fullmatch(text):
        raise Invalid(f"{what}: {text!r} is no address.", "Write an IP address or a name that all machines know.")
    return text


def require_cluster_name(text: str) -> str:
    if not _CLUSTER.fullmatch(text):
        hint = "Small letters, digits and underscores, a letter first: lab."
        raise Invalid(f"cluster: {text!r} cannot be the name of a cluster.", hint)
    return text


def require_partition_name(text: str) -> str:
    if not _WORD.fullmatch(text) or text.lower() in _TAKEN:
        hint = "Letters, digits, and _ . - after the first; not all or default."
        raise Invalid(f"partitions: {text!r} cannot be the name of a partition.", hint)
    return text


def require_feature(text: str, what: str) -> str:
    if not _WORD.fullmatch(text):
        hint = "Letters, digits, and _ . - after the first; for disk=ssd set labels in [slurm] of cluster.toml."
        raise Invalid(f"{what}: {text!r} cannot be a feature.", hint)
    return text


def require_gpu_type(text: str, what: str) -> str:
    """Slurm would take a number for a count: gpu:4090."""
    if not _WORD.fullmatch(text) or text.isdecimal():
        hint = "Letters, digits, and _ . - after the first, at least one letter: a100, rtx4090."
        raise Invalid(f"{what}: {text!r} cannot be a type of GPU.", hint)
    return text


def _numbers(part: str, text: str) -> list[str]:
    first, dash, last = part.partition("-")
    last = last if dash else first
    if not (first.isdecimal() and last.isdecimal()) or len(last) > 6 or int(first) > int(last):
        raise Invalid(f"{part!r} in {text!r} is no range.", "Write the smaller number first: 1-4.")
    if int(last) - int(first) >= MAX_EXPANDED_NAMES:
        raise Invalid(f"{text!r} are too many.", f"At most {MAX_EXPANDED_NAMES} at once.")
    return [str(number).zfill(len(first)) for number in range(int(first), int(last) + 1)]
