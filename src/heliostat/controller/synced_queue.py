"""The scheduler's queue state, kept up to date with the commits of the database."""

import threading
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.controller.job_counts import JobCounts
from heliostat.engines.contract import Capabilities
from heliostat.models import AttemptId, Job, JobId, JobSpec, JobState, Node, Reservation, job_id_of_attempt
from heliostat.scheduling.dependencies import explain_ineligible
from heliostat.scheduling.dispatch import select_jobs_to_dispatch
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.reservations import (
    active_reservation_names,
    add_reservation_labels,
    explain_closed_reservation,
    find_reservation_access,
)
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Snapshot
from heliostat.store.database import StoreChanges

_NO_SPEC = JobSpec()
OpenReservations = tuple[frozenset[str], tuple[Reservation, ...]]
"""The names of the active reservations, and all reservations."""


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """The queue in numbers, for monitoring."""

    unfinished: Mapping[tuple[str, JobState], int]  # number of jobs by kind and state
    active: tuple[Job, ...]  # starting and running
    longest_wait_seconds: float  # of the jobs that may start


class SyncedQueue:
    """Changed by one thread only; other threads can take a copy. Without specs: they may be large and only a start
    needs them."""

    def __init__(
        self,
        state: QueueState,
        jobs: Collection[Job] = (),
        now: datetime | None = None,
        counts: JobCounts | None = None,
    ) -> None:
        """`counts`: those of an earlier queue of this server."""
        self.state = state
        self.counts = counts or JobCounts()
        self._lock = threading.Lock()
        self._per_user: Counter[str] = Counter()
        self._per_kind: Counter[tuple[str, JobState]] = Counter()
        self._last_submitted_at: datetime | None = None
        self._open: OpenReservations | None = None
        self._nodes: tuple[tuple[Node, ...], OpenReservations, tuple[Node, ...]] | None = None
        for job in jobs:
            self._put(self._in_order(job), now or job.submitted_at)

    def __len__(self) -> int:
        return len(self.state.jobs)

    def apply_changes(self, changes: StoreChanges, now: datetime) -> None:
        with self._lock:
            for job in changes.added_jobs:
                self._put(self._in_order(replace(job, spec=_without_secrets(job.spec))), now)
            for job_id, values in changes.changed_jobs:
                if known := self.get(job_id):
                    self._put(replace(known, **values), now)

    def update_cluster(
        self,
        nodes: tuple[Node, ...],
        accounts: ShareAccounts,
        reservations: tuple[Reservation, ...],
        now: datetime,
    ) -> None:
        """Set the current nodes, shares, quotas and reservations."""
        open_now = (active_reservation_names(reservations, now), reservations)
        with self._lock:
            self.state.set_nodes(self._labelled(nodes, open_now))
            self.state.set_accounts(accounts)
            self.state.set_reservations(reservations)
            if open_now != self._open:
                self._open = open_now
                self.state.refresh_reservation_jobs(now)

    def get(self, job_id: JobId) -> Job | None:
        return self.state.jobs.get(job_id)

    def active_jobs(self) -> list[Job]:
        return self.state.active_jobs()

    def dispatched_jobs(self) -> list[Job]:
        """Jobs that wait in the engine's own queue."""
        return [job for job in self.state.jobs.values() if job.dispatched]

    def jobs_to_dispatch(
        self, engine: Capabilities, delayed: Collection[JobId], now: datetime, ended: Collection[AttemptId]
    ) -> list[Job]:
        with self._lock:
            self.state.admit_eligible_jobs(now.timestamp())
        return select_jobs_to_dispatch(
            self.state.jobs.values(),
            now,
            delayed=delayed,
            ended=ended,
            whole_arrays=engine.enforces_array_limit,
        )

    def explain_ineligible(self, job: Job, now: datetime) -> str | None:
        """Why a pending job is not in the queue yet. Other threads may call this."""
        if job.is_eligible(now):
            return explain_closed_reservation(job, find_reservation_access(job, self.state.reservations, now))
        with self._lock:
            return explain_ineligible(job, self.state.jobs, now)

    def active_jobs_and_pending_count(self) -> tuple[list[Job], int]:
        """Starting and running jobs, and the number of waiting ones. Other threads may call this."""
        with self._lock:
            return self.active_jobs(), self.state.eligible_count

    def snapshot(self, now: datetime, ended: Collection[AttemptId], delayed: Collection[JobId]) -> Snapshot:
        """The state once these attempts are recorded as ended; delayed jobs are not retried yet."""
        parts = [attempt_id.partition(".") for attempt_id in ended]
        jobs = [int(number) for number, _, attempt in parts if self._attempt_of(int(number)) == attempt]
        with self._lock:
            return self.state.snapshot(now, jobs, delayed)

    def record_checkpoint(self, attempt_id: AttemptId, saved_at: datetime, now: datetime) -> None:
        """Record that the engine has found a checkpoint of this attempt."""
        job = self.get(job_id_of_attempt(attempt_id))
        if job is None or job.attempt_id != attempt_id:
            return
        if job.checkpointed_at is None or job.checkpointed_at < saved_at:
            with self._lock:
                self._put(replace(job, checkpointed_at=saved_at), now)

    def copy_state(self) -> QueueState:
        """A copy for forecasts and explanations."""
        with self._lock:
            return self.state.copy()

    def figures(self, now: datetime) -> QueueFigures:
        """Other threads may call this."""
        with self._lock:
            longest_wait = self.state.longest_wait_seconds(now.timestamp())
            return QueueFigures(dict(self._per_kind), tuple(self.active_jobs()), longest_wait)

    def count_unfinished_jobs(self, user: str) -> int:
        return self._per_user[user]

    def _labelled(self, nodes: tuple[Node, ...], open_now: OpenReservations) -> tuple[Node, ...]:
        """The same tuple while nothing has changed: the queue state processes a new one again."""
        names, reservations = open_now
        if not names:
            return nodes
        if self._nodes is None or self._nodes[0] is not nodes or self._nodes[1] != open_now:
            self._nodes = (nodes, open_now, add_reservation_labels(nodes, reservations, names))
        return self._nodes[2]

    def _attempt_of(self, job_id: JobId) -> str | None:
        job = self.get(job_id)
        return None if job is None else str(job.attempt)

    def _in_order(self, job: Job) -> Job:
        """After the jobs submitted before it, also if the clock was set back in between."""
        last = self._last_submitted_at
        if last and last > job.submitted_at:
            waits_since = max(job.waits_since, last) if job.waits_since else None
            return replace(job, submitted_at=last, waits_since=waits_since)
        self._last_submitted_at = job.submitted_at
        return job

    def _put(self, job: Job, now: datetime) -> None:
        if known := self.get(job.id):
            self._per_user[known.user] -= 1
            self._per_kind[known.kind, known.state] -= 1
            self.counts.record_change(known, job)
        self._per_user[job.user] += not job.is_terminal
        self._per_kind[job.kind, job.state] += not job.is_terminal
        self.state.update_job(job, now)


def _without_secrets(spec: JobSpec) -> JobSpec:
    grace = spec.grace_seconds
    return _NO_SPEC if grace == _NO_SPEC.grace_seconds else JobSpec(grace_seconds=grace)
