"""What attempts have used, from Slurm's accounting: asked for once they are over, for many at once.

`attempts/12.1.owed` is what is left of the trace of an attempt whose use is not yet known: it was the trace until
the end was recorded, so that a killed server loses none. The accounting may be away, or behind, for hours.
"""

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from heliostat.engines.slurm.numbers import read_number
from heliostat.engines.slurm.parse import OVER
from heliostat.engines.slurm.quantities import gpus_in, resources_in, size_in_mib, span_in_seconds, whole_number
from heliostat.engines.slurm.traces import trace_in
from heliostat.models import AttemptId, AttemptUsage

USAGE_FIELDS = ("JobID", "UID", "State", "ElapsedRaw", "TotalCPU", "MaxRSS", "AveRSS", "NTasks", "AllocTRES")
"""None that a user could fill with text of their own."""
_SUFFIX = ".owed"
_PATIENCE_SECONDS = 2 * 86400.0  # after which what the accounting does not know is not asked for again
_HURRY_SECONDS = 600.0  # after which what is known of an unfinished step is taken as it is


@dataclass(frozen=True, slots=True)
class Used:
    """What the accounting says of a job."""

    uid: int
    usage: AttemptUsage
    is_complete: bool  # the job and all its steps are over there


@dataclass(frozen=True, slots=True)
class Owed:
    """An attempt whose use is to be found out."""

    attempt_id: AttemptId
    uid: int
    number: int
    since: float  # seconds since 1970

    def settled(self, used: Used | None, now: float) -> tuple[bool, AttemptUsage | None]:
        """Whether it need not be asked for again, and what is known then."""
        waited = now - self.since
        if used is None or used.uid != self.uid:
            return waited > _PATIENCE_SECONDS, None
        return used.is_complete or waited > _HURRY_SECONDS, used.usage


class OwedUsage:
    """The attempts whose use is to be found out, on disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def owe(self, attempt_ids: Iterable[AttemptId]) -> None:
        """Their traces are no longer needed but for this. Those without one owe nothing."""
        for attempt_id in attempt_ids:
            with contextlib.suppress(FileNotFoundError):
                os.replace(self._folder / f"{attempt_id}.slurm", self._path(attempt_id))

    def all(self, most: int) -> list[Owed]:
        """The oldest; what never came to Slurm is dropped."""
        found = [owed for path in self._folder.glob(f"*{_SUFFIX}") if (owed := self._read(path))]
        return sorted(found, key=lambda owed: owed.since)[:most]

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def _read(self, path: Path) -> Owed | None:
        try:
            trace, since = trace_in(path.read_text(encoding="utf-8")), path.stat().st_ctime
        except FileNotFoundError:
            return None
        if trace.uid is None or trace.number is None:
            path.unlink(missing_ok=True)
            return None
        return Owed(path.name.removesuffix(_SUFFIX), trace.uid, trace.number, min(since, time.time()))

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"


def uses_of_sacct(text: str) -> dict[int, Used]:
    """By job, of lines of USAGE_FIELDS: the line of a job, then those of its steps. Pure."""
    found: dict[int, Used] = {}
    for line in text.splitlines():
        words = line.split("|")
        number = read_number(words[0].partition(".")[0])
        if len(words) != len(USAGE_FIELDS) or number is None:
            continue
        if "." not in words[0]:
            found.pop(number, None)
            if used := _of_job(words):
                found[number] = used
        elif number in found:
            found[number] = _with_step(found[number], words)
    return found


def _of_job(words: list[str]) -> Used | None:
    _, uid, state, elapsed, cpu, *_, resources = words
    seconds = whole_number(elapsed)
    if seconds is None or whole_number(uid) is None:
        return None
    gpus, _ = gpus_in(resources_in(resources))
    state = state.partition(" ")[0]
    usage = AttemptUsage(
        float(seconds),
        cpu_seconds=span_in_seconds(cpu) or None,
        gpu_seconds=float(gpus * seconds) if gpus else None,
        out_of_memory=state == "OUT_OF_MEMORY",
    )
    return Used(int(uid), usage, state in OVER)


def _with_step(used: Used, words: list[str]) -> Used:
    _, _, state, _, _, largest, mean, tasks, _ = words
    state, usage = state.partition(" ")[0], used.usage
    usage = AttemptUsage(
        usage.elapsed_seconds,
        usage.cpu_seconds,
        _largest(usage.memory_mib, size_in_mib(largest), _of_all(mean, tasks)),
        usage.gpu_seconds,
        usage.out_of_memory or state == "OUT_OF_MEMORY",
    )
    return Used(used.uid, usage, used.is_complete and state in OVER)


def _of_all(mean: str, tasks: str) -> float | None:
    """MaxRSS is that of the largest task; all of them together held about this."""
    each, count = size_in_mib(mean), whole_number(tasks)
    return None if each is None or count is None else each * count


def _largest(*values: float | None) -> float | None:
    return max((value for value in values if value), default=None)
