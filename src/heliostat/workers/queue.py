"""A picture in memory of all jobs that are not over, kept in step with the database by its commits."""

import bisect
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

from heliostat.models import ACTIVE, AttemptId, Job, JobId, JobSpec, JobState, Node
from heliostat.scheduling.plan import queue_key
from heliostat.scheduling.snapshot import Allocation, Snapshot
from heliostat.store.database import Changes

_NO_SPEC = JobSpec()


class Queue:
    """Belongs to one thread. Specs are left out: they may be large and only a start needs them."""

    def __init__(self, jobs: Collection[Job] = ()) -> None:
        self._pending: dict[JobId, Job] = {}
        self._order: list[tuple[int, JobId]] = []
        self._active: dict[JobId, Job] = {}
        self._held: dict[JobId, Job] = {}
        self._per_user: Counter[str] = Counter()
        for job in jobs:
            self._put(job)

    def __len__(self) -> int:
        return len(self._pending) + len(self._active) + len(self._held)

    def apply(self, changes: Changes) -> None:
        for job in changes.added:
            self._put(replace(job, spec=_NO_SPEC))
        for job_id, values in changes.moved:
            if known := self.get(job_id):
                self._put(replace(known, **values))

    def get(self, job_id: JobId) -> Job | None:
        return self._pending.get(job_id) or self._active.get(job_id) or self._held.get(job_id)

    def active(self) -> list[Job]:
        return list(self._active.values())

    def snapshot(
        self, nodes: tuple[Node, ...], ended: Collection[AttemptId], delayed: Collection[JobId]
    ) -> Snapshot:
        """As it will be once these attempts are recorded as ended; the delayed are not yet to be tried again."""
        allocations = tuple(
            Allocation(job.attempt_id, job, job.node or "", job.devices)
            for job in self._active.values()
            if not ended or job.attempt_id not in ended
        )
        pending = tuple(self._pending[key[-1]] for key in self._order if key[-1] not in delayed)
        return Snapshot(nodes, allocations, pending)

    def count_of(self, user: str) -> int:
        return self._per_user[user]

    def _put(self, job: Job) -> None:
        self._take_out(job.id)
        self._per_user[job.user] += not job.is_over
        if job.state is JobState.PENDING:
            self._pending[job.id] = job
            bisect.insort(self._order, queue_key(job))
        elif job.state in ACTIVE:
            self._active[job.id] = job
        elif not job.is_over:
            self._held[job.id] = job

    def _take_out(self, job_id: JobId) -> None:
        if known := self.get(job_id):
            self._per_user[known.user] -= 1
        if known and self._pending.pop(job_id, None):
            del self._order[bisect.bisect_left(self._order, queue_key(known))]
        self._active.pop(job_id, None)
        self._held.pop(job_id, None)
