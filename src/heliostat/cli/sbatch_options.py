"""Translates `#SBATCH` options to job fields.

Slurm runs a batch script once, on the first node, with the CPUs of all its tasks there: one task of Heliostat.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

_LONG_NAMES = {
    "-a": "--array",
    "-b": "--begin",
    "-c": "--cpus-per-task",
    "-D": "--chdir",
    "-G": "--gpus",
    "-H": "--hold",
    "-J": "--job-name",
    "-n": "--ntasks",
    "-N": "--nodes",
    "-t": "--time",
}
_FLAGS = ("--exclusive", "--hold")
_MIB_PER_UNIT = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}
_GPUS = re.compile(r"(?:gpu:)?(?:(\w*[A-Za-z][\w.-]*):)?(\d+)(?:\(.*\))?", re.ASCII)


class _Amounts(NamedTuple):
    """Those of the whole batch job."""

    tasks: int
    cpus: int


Fields = dict[str, Any] | None  # None: the option is ignored


def translate_sbatch_options(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The job fields by their name in the Python client, and the options that are ignored."""
    options = _parse(words)
    tasks = _positive_number(options.get("--ntasks", "1")) or 1
    amounts = _Amounts(tasks, tasks * (_positive_number(options.get("--cpus-per-task", "1")) or 1))
    job: dict[str, Any] = {}
    ignored: list[str] = []
    for name, value in options.items():
        fields = _FIELDS[name](value, amounts) if name in _FIELDS else None
        job |= fields or {}
        if fields is None:
            ignored.append(f"{name}={value}" if value else name)
    return job, ignored


def _parse(words: Sequence[str]) -> dict[str, str]:
    """Long names and values; a later option wins."""
    found: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.startswith("--"):
            name, equals, value = word.partition("=")
        else:
            name, equals, value = _LONG_NAMES.get(word[:2], word[:2]), word[2:], word[2:]
        if not equals and name not in _FLAGS and rest and not rest[0].startswith("-"):
            value = rest.pop(0)
        found[name] = value
    return found


def _gpu_fields(value: str, times: int = 1) -> Fields:
    match = _GPUS.fullmatch("gpu:1" if value == "gpu" else value)
    if match is None:
        return None
    return {"gpus": int(match[2]) * times, **({"gpu_type": match[1]} if match[1] else {})}


def _cpu_fields(value: str, amounts: _Amounts) -> Fields:
    return {"cpus": amounts.cpus} if _positive_number(value) else None


def _memory_fields(value: str, times: int = 1) -> Fields:
    """`4000`, `16G`; 0 means all memory of the node, which cannot be requested."""
    match = re.fullmatch(r"(\d{1,12})([KMGT]?)B?", value.upper(), re.ASCII)
    if match is None or not int(match[1]):
        return None
    return {"memory": max(1, int(int(match[1]) * _MIB_PER_UNIT[match[2]])) * times}


def _time_fields(value: str) -> Fields:
    seconds = _seconds(value)
    return {"time": seconds} if seconds else None


def _positive_number(value: str) -> int | None:
    return int(value) if value.isascii() and value.isdecimal() and int(value) else None


def _seconds(value: str) -> int | None:
    """`90` and `90:00` are minutes, `1:30:00` hours, `2-12` days and hours."""
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", value, re.ASCII)
    if match is None:
        return None
    days, *parts = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:
        hours, minutes, seconds = parts
    else:
        hours, minutes, seconds = 0, parts[0], parts[1]
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


_FIELDS: dict[str, Callable[[str, _Amounts], Fields]] = {
    "--array": lambda value, _: {"array": value},
    "--begin": lambda value, _: {"begin": value} if re.match(r"\d{4}-\d\d-\d\d", value) else None,
    "--chdir": lambda value, _: {"workdir": value},
    "--cpus-per-task": _cpu_fields,
    "--exclusive": lambda _value, _: {"exclusive": True},
    "--gpus": lambda value, _: _gpu_fields(value),
    "--gpus-per-node": lambda value, _: _gpu_fields(value),
    "--gpus-per-task": lambda value, amounts: _gpu_fields(value, amounts.tasks),
    "--gres": lambda value, _: _gpu_fields(value) if value.startswith("gpu") else None,
    "--hold": lambda _value, _: {"held": True},
    "--job-name": lambda value, _: {"name": value},
    "--mem": lambda value, _: _memory_fields(value),
    "--mem-per-cpu": lambda value, amounts: _memory_fields(value, amounts.cpus),
    "--nodes": lambda value, _: {} if value in ("1", "1-1") else None,
    "--ntasks": _cpu_fields,
    "--time": lambda value, _: _time_fields(value),
}
