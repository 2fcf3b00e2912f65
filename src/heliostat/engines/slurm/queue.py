"""Who waits where in Slurm's queue: pure, and worked out only when somebody asks."""

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property

from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.reasons import reason_of
from heliostat.models import Waiting

_SOURCE = "Slurm's plan"
_NOT_IN_LINE = frozenset({"Dependency", "DependencyNeverSatisfied", "BeginTime"})


class Line:
    """The queue as one look has found it. Each partition has a line of its own; who is held, or waits for another
    job or for its time to begin, stands in none."""

    def __init__(self, jobs: Mapping[int, SlurmJob]) -> None:
        self._jobs = jobs

    def waiting(self, number: int) -> Waiting | None:
        """None: it does not wait, or is not known."""
        job = self._jobs.get(number)
        if job is None or not job.is_waiting:
            return None
        reason = reason_of(job.reason)
        position, of = self._positions.get(number, (None, None))
        starts_at = None if reason.kind == "held" else job.started_at
        return Waiting(reason.words, reason.kind, position, of, starts_at, _SOURCE)

    @cached_property
    def _positions(self) -> dict[int, tuple[int, int]]:
        lines: dict[str, list[SlurmJob]] = defaultdict(list)
        for job in self._jobs.values():
            if job.is_waiting and job.place.priority > 0 and job.reason not in _NOT_IN_LINE:
                lines[job.place.partition].append(job)
        found: dict[int, tuple[int, int]] = {}
        for line in lines.values():
            line.sort(key=lambda job: (-job.place.priority, job.number))
            found |= {job.number: (at, len(line)) for at, job in enumerate(line, 1)}
        return found
