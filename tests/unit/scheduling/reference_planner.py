"""Reference planner with plain loops over nodes, times and jobs: slow and simple.

It decides for each job of the queue whether it could start. Where several placements are valid, it checks and then
follows the one of the plan.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

from heliostat.models import Job, Node, TaskPlacement
from heliostat.scheduling.policy import QueueOrdering
from heliostat.scheduling.quotas import find_quota, quota_keys
from heliostat.scheduling.snapshot import BookedStart, Plan
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import Case
from unit.scheduling.reference_cluster import ReferenceCluster

NOW_SECONDS = NOW.timestamp()


@dataclass(frozen=True)
class Booked:
    job: Job
    at: float
    nodes: tuple[str, ...]


class ReferencePlanner:
    """For plans with one booking, whole devices, and reservations of whole nodes."""

    def __init__(self, case: Case, made: Plan) -> None:
        self._case, self._made = case, made
        self._cluster = case.cluster()
        self._ends = {job.id: (self._end_of(job), job, job.task_placements) for job in case.running}
        self._booked: Booked | None = None
        self._active = list(case.running)

    def differences(self) -> Iterator[str]:
        """Differences between the plan and the reference."""
        real = {start.job.id: start for start in self._made.starts}
        may_pass = True
        for job in self._queue():
            start = real.get(job.id)
            if start is not None:
                yield from self._of_start(job, start.places, may_pass)
                continue
            if not may_pass or self._is_held_back(job):
                continue
            if self._could_start(job):
                yield f"job {job.id} could start"
            elif self._booked is None and self._is_possible(job):
                yield from self._book(job)
                may_pass = self._case.policy.backfill or self._booked is None

    def _queue(self) -> list[Job]:
        if self._case.policy.order is QueueOrdering.SHORTEST_JOB_FIRST:
            return sorted(self._case.pending, key=lambda job: (self._case.limit(job), job.id))
        return sorted(self._case.pending, key=lambda job: job.id)

    def _of_start(self, job: Job, places: tuple[TaskPlacement, ...], may_pass: bool) -> Iterator[str]:
        if not may_pass or self._is_held_back(job):
            yield f"job {job.id} starts though it may not yet"
        end = NOW_SECONDS + self._case.limit(job)
        closed = self._closed(job, NOW_SECONDS)
        if any(place.node in closed for place in places) or self._delays(job, places, end):
            yield f"job {job.id} starts where it is in the way"
        self._cluster.put(job, places)
        self._ends[job.id] = (end, job, places)
        self._active.append(job)

    def _is_held_back(self, job: Job) -> bool:
        """Whether its array limit or a quota blocks it."""
        if job.array_limit is not None:
            if sum(other.array_id == job.array_id for other in self._active) >= job.array_limit:
                return True
        gpus = self._case.gpus(job)
        return gpus > 0 and any(
            self._is_over(scope, gpus) for scope in quota_keys(job.user, job.project, self._case.accounts)
        )

    def _is_over(self, scope: tuple[str, str], more: float) -> bool:
        quota, held, hours = find_quota(scope, self._case.accounts), 0.0, 0.0
        for job in self._active:
            if scope in quota_keys(job.user, job.project, self._case.accounts):
                gpus, began = self._case.gpus(job), job.started_at or NOW
                held += gpus
                until = max(began + timedelta(seconds=self._case.limit(job)), NOW)
                month = NOW.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                hours += gpus * max((until - max(began, month)) / timedelta(hours=1), 0.0)
        if quota.running_gpus is not None and held + more > quota.running_gpus:
            return True
        return quota.gpu_hours_per_month is not None and hours >= quota.gpu_hours_per_month

    def _could_start(self, job: Job) -> bool:
        """Node by node, task after task; with devices of one kind."""
        closed = self._closed(job, NOW_SECONDS)
        by_kind: dict[object, int] = {}
        for name, node in self._cluster.nodes.items():
            if name not in closed:
                by_kind[_kind(job, node)] = by_kind.get(_kind(job, node), 0) + self._most_tasks(job, name)
        return max(by_kind.values(), default=0) >= job.placement.tasks

    def _most_tasks(self, job: Job, name: str) -> int:
        end, most = NOW_SECONDS + self._case.limit(job), 0
        trial, places = self._cluster.copy(), list[TaskPlacement]()
        limit = 1 if job.placement.layout == "spread" else job.placement.tasks
        while len(places) < limit:
            one = trial.places_for(_single(job), self._case.data_class(job), [name])
            if one is None:
                break
            places += one
            trial.put(job, one)
            if self._delays(job, tuple(places), end):
                break
            most = len(places)
        return most

    def _delays(self, job: Job, places: tuple[TaskPlacement, ...], end: float) -> bool:
        """Whether the blocked job could then not start as booked."""
        if self._booked is None or end <= self._booked.at:
            return False
        waiting, then = self._booked.job, self._cluster_at(self._booked.at)
        then.put(job, places)
        found = then.places_for(waiting, self._case.data_class(waiting), self._booked.nodes)
        return found is None or bool(then.overfull())

    def _book(self, job: Job) -> Iterator[str]:
        """Step through every time at which something becomes free."""
        times = {end for end, _, _ in self._ends.values()}
        times |= {reservation.ends_at.timestamp() for reservation in self._case.reservations}
        for at in sorted(time for time in times if time >= NOW_SECONDS):
            if self._fits_at(job, at, tuple(self._cluster.nodes)):
                break
        else:
            return
        if not self._made.booked_starts:
            if self._made.starts:
                yield f"job {job.id} is not booked"
            self._booked = Booked(job, at, tuple(self._cluster.nodes))
            return
        head: BookedStart = self._made.booked_starts[0]
        if head.job_id != job.id or abs((head.starts_at - NOW).total_seconds() - (at - NOW_SECONDS)) > 1:
            hours = (at - NOW_SECONDS) / 3600
            yield f"job {head.job_id} is booked at {head.starts_at}, not job {job.id} in {hours} hours"
        elif not self._fits_at(job, at, head.nodes):
            yield f"job {job.id} does not fit where it is booked"
        self._booked = Booked(job, at, head.nodes)

    def _fits_at(self, job: Job, at: float, names: tuple[str, ...]) -> bool:
        closed = self._closed(job, at)
        open_names = [name for name in names if name not in closed]
        return self._cluster_at(at).places_for(job, self._case.data_class(job), open_names) is not None

    def _is_possible(self, job: Job) -> bool:
        empty = ReferenceCluster(self._cluster.nodes.values())
        return empty.places_for(job, self._case.data_class(job), list(empty.nodes)) is not None

    def _cluster_at(self, at: float) -> ReferenceCluster:
        """The cluster at that time if all jobs use their full time limits."""
        then = self._cluster.copy()
        for end, job, places in self._ends.values():
            if end <= at:
                then.remove(job, places)
        return then

    def _closed(self, job: Job, at: float) -> set[str]:
        """Nodes that are reserved for others at some time while it would run."""
        end = at + self._case.limit(job)
        return {
            name
            for reservation in self._case.reservations
            if reservation.project is None or reservation.project != job.project
            if at < reservation.ends_at.timestamp() and reservation.starts_at.timestamp() < end
            for name in reservation.nodes
        }

    def _end_of(self, job: Job) -> float:
        assert job.started_at is not None
        return max(NOW_SECONDS, job.started_at.timestamp() + self._case.limit(job))


def _kind(job: Job, node: Node) -> object:
    """Nodes here have devices of one kind each."""
    return (node.devices[0].type, node.devices[0].memory_mib) if job.resources.gpus and node.devices else None


def _single(job: Job) -> Job:
    """One of its tasks."""
    return replace(job, placement=replace(job.placement, tasks=1))
