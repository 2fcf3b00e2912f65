"""Parsers for sizes, durations, GPU counts, signals, labels and array ranges. They raise ValueError."""

import re
from dataclasses import dataclass

_MIB_PER_UNIT = {"M": 1, "G": 2**10, "T": 2**20}
_SECONDS_PER_UNIT = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
MAX_ARRAY_SIZE = 10_000
MAX_GPUS = 100_000
STOP_SIGNALS = ("TERM", "INT", "HUP", "QUIT", "USR1", "USR2")
_MAX_LENGTH = 60  # characters of a duration


@dataclass(frozen=True, slots=True)
class ArrayRange:
    """`0-99%8`: the indexes, and how many may run at once (None: all)."""

    indexes: tuple[int, ...]
    limit: int | None = None


def parse_memory(text: str) -> int:
    """`16G`, `512M`, `1.5T` in MiB; a number alone is MiB."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,3})?)\s*([MGT])?(?:i?B)?", text.strip(), re.IGNORECASE | re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory; write 512M, 16G or 1.5T")
    return int(float(match[1]) * _MIB_PER_UNIT[(match[2] or "M").upper()])


def parse_duration(text: str) -> int:
    """`90s`, `4h`, `1d12h`, `1:30:00` or `2-00:00:00` in seconds. A number needs a unit, except 0."""
    text = text.strip()
    if len(text) > _MAX_LENGTH:
        raise ValueError(f"{text[:_MAX_LENGTH]!r}… is not a duration; write 90s, 30m, 4h, 1d12h or 1:30:00")
    if re.fullmatch(r"\d+", text, re.ASCII):
        if int(text):  # seconds or minutes? Authors of jobs differ
            raise ValueError(f"{text} has no unit; write {text}m, {text}h or {text}s")
        return 0
    if match := re.fullmatch(r"(?:(\d{1,4})-)?(\d{1,4}):(\d\d)(?::(\d\d))?", text, re.ASCII):
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        return ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    parts = re.findall(r"(\d{1,9})\s*([smhdw])", text.lower(), re.ASCII)
    if not parts or re.sub(r"\d+\s*[smhdw]\s*", "", text.lower(), flags=re.ASCII):
        raise ValueError(f"{text!r} is not a duration; write 90s, 30m, 4h, 1d12h or 1:30:00")
    return sum(int(number) * _SECONDS_PER_UNIT[unit] for number, unit in parts)


def parse_gpus(number: float) -> float:
    """A whole number of GPUs, or a fraction of one GPU with two decimals."""
    if not 0 <= number <= MAX_GPUS:
        raise ValueError(f"must be between 0 and {MAX_GPUS}")
    if number == int(number):
        return int(number)
    if number > 1:
        raise ValueError("must be a whole number, or a fraction of one GPU such as 0.5")
    if round(number, 2) != number:
        raise ValueError("a fraction of a GPU has at most two decimals, such as 0.25")
    return number


def parse_signal(text: str) -> str:
    """`USR1` or `SIGUSR1`: the short name of a signal that can be sent before preemption."""
    name = text.strip().upper().removeprefix("SIG")
    if name not in STOP_SIGNALS:
        raise ValueError(f"{text[:20]!a} is not one of {', '.join(STOP_SIGNALS)}")
    return name


def parse_label(text: str) -> str:
    """`fast` or `disk=ssd`: a label of a node."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_./-]{0,62}(=[A-Za-z0-9_./-]{0,63})?", text, re.ASCII):
        raise ValueError(f"{text[:60]!a} is not a label; write a name such as fast, or name=value: disk=ssd")
    return text


def parse_array(text: str) -> ArrayRange:
    """`0-99`, `0-99%8`, `1,3,5-9`: the indexes of a job array and how many may run at once."""
    match = re.fullmatch(r"([0-9,\-\s]{1,2000})(?:%(\d{1,6}))?", text.strip(), re.ASCII)
    if match is None:
        raise ValueError(f"{text!r} is not an array; write 0-99, 0-99%8 (8 at once) or 1,3,5-9")
    indexes: list[int] = []
    for part in match[1].split(","):
        indexes += _indexes(part.strip(), text)
        if len(indexes) > MAX_ARRAY_SIZE:
            raise ValueError(f"an array may have {MAX_ARRAY_SIZE} elements, {text!r} has more")
    if len(set(indexes)) != len(indexes):
        raise ValueError(f"{text!r} contains an index twice")
    limit = int(match[2]) if match[2] else None
    if limit == 0:
        raise ValueError(f"{text!r} would never run; write at least %1")
    return ArrayRange(tuple(indexes), limit)


def _indexes(part: str, text: str) -> range:
    match = re.fullmatch(r"(\d{1,9})(?:-(\d{1,9}))?", part, re.ASCII)
    if match is None or int(match[2] or match[1]) < int(match[1]):
        raise ValueError(f"{part!r} in {text!r} is not an index or a range such as 0-99")
    indexes = range(int(match[1]), int(match[2] or match[1]) + 1)
    if len(indexes) > MAX_ARRAY_SIZE:
        raise ValueError(f"an array may have {MAX_ARRAY_SIZE} elements, {text!r} has more")
    return indexes
