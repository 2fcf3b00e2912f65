"""What `sbatch` is told, as slurmrestd wants to be told it: pure.

The words of `sbatch` are the one record of a submission. An option that is not translated here is refused, so that
the two ways to Slurm cannot come to mean different things.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

Value = object
_DIGITS = re.compile(r"(\d{1,9})M?", re.ASCII)


class Untold(Exception):
    """slurmrestd has no words for an option."""


@dataclass(frozen=True, slots=True)
class Order:
    job: Mapping[str, Value]  # the description of the job, without its script
    uid: int | None = None  # whose job it is; None: of whoever the token is


def order_of(argv: Sequence[str]) -> Order:
    """Of `sbatch --parsable --name=value …`. Raises Untold."""
    options = dict(_pairs(argv))
    uid = options.pop("uid", None)
    job: dict[str, Value] = {}
    for name, value in options.items():
        if name not in _FIELDS:
            raise Untold(f"slurmrestd has no word for --{name}")
        if (field := _FIELDS[name]) is not None:
            job[field[0]] = field[1](value)
    return Order(job | {"environment": dict(_environment(options))}, None if uid is None else int(uid))


def _pairs(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word in argv[1:]:
        if not word.startswith("--"):
            raise Untold(f"slurmrestd has no word for {word}")
        name, _, value = word[2:].partition("=")
        yield name, value


def _environment(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """None of a job's own variables, which are in its script, but what `sbatch` would add: `srun` reads it."""
    yield "SLURM_EXPORT_ENV", options.get("export", "ALL")
    for name, variable in _TOLD_TO_SRUN.items():
        if name in options:
            yield variable, options[name].removesuffix("M")


def _text(value: str) -> str:
    return value


def _number(value: str) -> int:
    """`64`, or `64M` of memory."""
    found = _DIGITS.fullmatch(value)
    if found is None:
        raise Untold(f"slurmrestd wants a number, not {value!r}")
    return int(found[1])


def _exactly(told: Value) -> Callable[[str], Value]:
    return lambda value: told


_TOLD_TO_SRUN = {
    "cpus-per-task": "SLURM_CPUS_PER_TASK",
    "gpus-per-task": "SLURM_GPUS_PER_TASK",
    "mem-per-cpu": "SLURM_MEM_PER_CPU",
}
# None: not said. The user's name stands for uid and gid; nothing of our environment and limits comes along.
# Against its documentation (22.05): nodes are a text, as a list of least and most is forgotten; `requeue` means
# yes whatever its value, so there is a word for no.
_FIELDS: dict[str, tuple[str, Callable[[str], Value]] | None] = {
    "parsable": None,
    "gid": None,
    "export": None,
    "propagate": None,
    "comment": ("comment", _text),
    "output": ("standard_output", _text),
    "error": ("standard_error", _text),
    "input": ("standard_input", _text),
    "open-mode": ("open_mode", _text),
    "chdir": ("current_working_directory", _text),
    "job-name": ("name", _text),
    "no-requeue": ("no_requeue", _exactly(True)),
    "array": ("array", _text),
    "dependency": ("dependency", _text),
    "account": ("account", _text),
    "ntasks": ("tasks", _number),
    "cpus-per-task": ("cpus_per_task", _number),
    "nodes": ("nodes", _text),
    "mem": ("memory_per_node", _number),
    "mem-per-cpu": ("memory_per_cpu", _number),
    "gpus-per-task": ("gpus_per_task", _text),
    "gres": ("gres", _text),
    "partition": ("partition", _text),
    "time": ("time_limit", _number),
    "exclusive": ("exclusive", _exactly("exclusive")),
    "constraint": ("constraints", _text),
    "qos": ("qos", _text),
}
