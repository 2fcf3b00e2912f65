"""The scheduler: decides which jobs start on which nodes. A pure function of the snapshot.

Jobs are tried in queue order, and each job that fits starts. The first jobs that do not fit get a booking for the
time at which running jobs, by their time limits, will have freed enough; later jobs may start (backfill) only if
they do not delay a booking. Free resources only shrink while a plan is made, so a shape that did not fit is not
tried again, and after some failed tries one pass finds all jobs that cannot start. The cost grows with the number
of starts and of different shapes, hardly with the queue length.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from heliostat.models import Job, JobId
from heliostat.scheduling.availability import (
    FutureAvailability,
    book_capacity_for_job,
    build_availability,
    expected_ends,
)
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.planned_capacity import Capacity, is_feasible
from heliostat.scheduling.policy import QueueOrdering, SchedulingPolicy
from heliostat.scheduling.preemption import BlockedJob, select_jobs_to_stop
from heliostat.scheduling.queue_order import sort_pending
from heliostat.scheduling.queue_state import start_of_month
from heliostat.scheduling.quotas import ArrayLimits, QuotaTracker
from heliostat.scheduling.reservations import book_capacity_for_window, list_reservation_windows
from heliostat.scheduling.snapshot import BookedStart, Plan, PlannedStart, PlannedStop, Snapshot
from heliostat.scheduling.startable_jobs import find_startable

_LONGEST_MONTH = 31 * 86400.0
_MAX_STARTS = 2500  # per plan, so that it takes less than a second
_MAX_FAILED_TRIES = 100  # per user and plan: bounds the cost of a user with many different shapes
_TRIES_BEFORE_PASS = 16  # failed tries before one pass tests all jobs: fewer tries cost less than a pass
_MIN_WAIT_SECONDS = 60.0  # before a job gets a booking that it keeps: most jobs start sooner
_MAX_PREEMPTING = 3  # blocked jobs without a booking for which jobs may be preempted


def plan(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> Plan:
    """The jobs to start and to stop now."""
    result, next_begin = _plan(snapshot, policy, now), snapshot.next_begin_at
    if next_begin is None:
        return result
    return replace(result, wake_at=next_begin if result.wake_at is None else min(result.wake_at, next_begin))


def _plan(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> Plan:
    if not len(snapshot.pending):
        return Plan()
    if _is_full_and_static(snapshot) and not _may_book(snapshot, policy, now.timestamp()):
        return Plan(compute_booked_starts=partial(_compute_bookings, snapshot, policy, now))
    return _Planner(snapshot, policy, now).build()


def _compute_bookings(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> tuple[BookedStart, ...]:
    """The bookings, even if no other job could use the booked resources."""
    return _Planner(snapshot, policy, now, books_always=True).build().booked_starts


def _is_full_and_static(snapshot: Snapshot) -> bool:
    """Quick check for a full cluster: no job fits, no job may be preempted, and no reservation exists."""
    node_table = snapshot.node_table
    if snapshot.reservations or snapshot.shared_device_use or node_table.unusable_devices:
        return False
    if snapshot.has_preemptible:
        return False
    largest_free = snapshot.largest_free
    waiting = np.flatnonzero(np.bincount(snapshot.pending["shape"])).tolist()
    return all(largest_free.is_too_small_for(snapshot.shapes[number], node_table) for number in waiting)


def _may_book(snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> bool:
    """Whether a job could get a booking that it keeps: another one could, and it has waited long enough."""
    if policy.order is not QueueOrdering.FAIR_SHARE or not policy.backfill:
        return False
    pending = snapshot.pending
    is_booked = np.isfinite(pending["booked"])
    may_book = ~is_booked & (pending["rank"] > 0) & (pending["waiting"] <= now - _MIN_WAIT_SECONDS)
    return bool(is_booked.sum() < policy.backfill_reservations and may_book.any())


@dataclass(slots=True)
class _Queue:
    """Rows of the pending jobs that are still to be tried, in order."""

    rows: Array
    shape: Array
    limit: Array
    leaf: Array
    array: Array
    next: int = 0

    def drop(self, dropped: Array) -> None:
        """Remove the remaining rows that the mask selects."""
        remaining = ~dropped[self.next :]
        for name in ("rows", "shape", "limit", "leaf", "array"):
            setattr(self, name, getattr(self, name)[self.next :][remaining])
        self.next = 0


class _Planner:
    def __init__(
        self, snapshot: Snapshot, policy: SchedulingPolicy, now: datetime, books_always: bool = False
    ) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._books_always = books_always
        self._bookings_deferred = False
        self._seconds = now.timestamp()
        self._capacity = Capacity(snapshot)
        self._quotas = QuotaTracker(snapshot, policy, self._seconds)
        self._windows = list_reservation_windows(snapshot, now)
        self._arrays = ArrayLimits(snapshot)
        self._starts: list[PlannedStart] = []
        self._cached_ends: Array | None = None
        self._blocked: list[BlockedJob] = []  # with a booking
        self._waiting: list[BlockedJob] = []  # the first ones without a booking
        self._heads: list[int] = []  # rows of the first blocked jobs, with or without a computed booking
        self._availability: FutureAvailability | None = None
        self._next_month = False
        self._no_fit, self._feasible, self._all_feasible = self._check_shapes()
        self._failed_tries: Counter[int] = Counter()  # by leaf
        self._tries_before_pass = _TRIES_BEFORE_PASS  # doubles with each pass, so that few passes are made
        self._was_tried = False  # the queue, in this plan
        self._starts_counted = 0  # number of starts that _no_fit takes into account
        self._may_preempt = snapshot.has_preemptible
        last_end = self._seconds + float(snapshot.pending["limit"].max(initial=0.0)) if self._windows else 0.0
        for window in self._windows:
            if window.start > last_end:  # windows are sorted, and every job of this plan ends before this one
                break
            self._capacity.bookings.append(
                book_capacity_for_window(window, snapshot, self._capacity, self._ends, self._seconds)
            )

    def build(self) -> Plan:
        may_book = _may_book(self._snapshot, self._policy, self._seconds)
        if self._may_preempt or self._books_always or may_book or not self._no_fit.all():
            self._try_queue()
        else:
            self._bookings_deferred = True
        stops: tuple[PlannedStop, ...] = ()
        if self._may_preempt:
            blocked = [*self._blocked, *self._waiting]
            stops = select_jobs_to_stop(self._snapshot, self._policy, self._capacity, blocked, self._seconds)
        kept, withdrawn = self._booking_changes()
        return Plan(tuple(self._starts), stops, self._wake_at(), kept, withdrawn, self._booked_starts())

    @property
    def _ends(self) -> Array:
        if self._cached_ends is None:
            assumed = self._policy.assumed_limit_seconds
            self._cached_ends = expected_ends(self._snapshot.running, assumed, self._seconds)
        return self._cached_ends

    def _check_shapes(self) -> tuple[Array, Array, bool]:
        """For the shapes of pending jobs, by number: fits nowhere now; fits on empty nodes. Last: all do."""
        shapes, node_table = self._snapshot.shapes, self._snapshot.node_table
        no_fit, feasible = np.ones(len(shapes), bool), np.zeros(len(shapes), bool)
        numbers = np.flatnonzero(np.bincount(self._snapshot.pending["shape"], minlength=len(shapes)))
        waiting = [shapes[number] for number in numbers.tolist()]
        feasible[numbers] = [is_feasible(shape, node_table) for shape in waiting]
        no_fit[numbers] = ~(feasible[numbers] & self._capacity.may_fit(waiting))
        return no_fit, feasible, bool(feasible[numbers].all())

    def _try_queue(self) -> None:
        self._was_tried = True
        rows = sort_pending(self._snapshot, self._policy, self._seconds)
        if not self._all_feasible:
            rows = rows[self._feasible[self._snapshot.pending["shape"][rows]]]
        queue = _Queue(*self._candidate_columns(rows))
        while queue.next < len(queue.rows):
            blocked = self._try(queue, int(queue.rows[queue.next]))
            if (blocked and not self._policy.backfill) or len(self._starts) >= _MAX_STARTS:
                return

    def _candidate_columns(self, rows: Array) -> tuple[Array, Array, Array, Array, Array]:
        """The jobs that might start, and the first of the others, which get a booking."""
        pending = self._snapshot.pending
        if self._only_resources_matter():
            no_fit = self._no_fit[pending["shape"]][rows]
            blocked_count = self._policy.backfill_reservations + (_MAX_PREEMPTING if self._may_preempt else 0)
            first = np.cumsum(no_fit & (pending["rank"][rows] > 0)) <= blocked_count
            rows = rows[first | ~no_fit]
        columns = pending[rows]
        return rows, columns["shape"], columns["limit"], columns["leaf"], columns["array"]

    def _only_resources_matter(self) -> bool:
        """No array limit, quota or budget can block a job: only missing resources can."""
        return not (self._quotas.has_any or self._snapshot.has_array_or_budget_limits)

    def _try(self, queue: _Queue, row: int) -> bool:
        """Start the job, or drop it with all jobs that are blocked for the same reason. True: it has a booking."""
        values = self._snapshot.pending[row]
        job = self._snapshot.jobs[int(values["job"])]
        number = int(values["shape"])
        shape = self._snapshot.shapes[number]
        if self._is_limited(queue, job, float(values["gpus"])):
            return False
        end = self._seconds + float(values["limit"])
        is_full = self._no_fit[number] or self._capacity.is_surely_full(shape)
        placement = None if is_full else self._capacity.find_placement(shape, job.project, end)
        if placement is None:
            return self._block(queue, row, job, shape)
        self._starts.append(self._capacity.allocate(job, shape, placement, end))
        self._quotas.add_started_job(job, float(values["gpus"]))
        self._arrays.add_started_job(job)
        self._availability = None
        queue.next += 1
        return False

    def _is_limited(self, queue: _Queue, job: Job, gpus: float) -> bool:
        """Whether its array limit or a quota blocks it."""
        if self._arrays.is_at_limit(job):
            queue.drop(queue.array == job.array_id)
            return True
        violation = self._quotas.find_violation(job, gpus)
        if violation is None:
            return False
        self._next_month |= violation.until_next_month
        ranks, requested = self._snapshot.pending["rank"][queue.rows], self._snapshot.pending["gpus"][queue.rows]
        same_account = (queue.leaf == queue.leaf[queue.next]) & (ranks == ranks[queue.next])
        queue.drop(same_account & (requested >= gpus))
        return True

    def _block(self, queue: _Queue, row: int, job: Job, shape: JobShape) -> bool:
        """Book resources for it if it is among the first; drop jobs of the same shape that run as long."""
        booked = False
        if self._snapshot.pending["rank"][row] > 0:
            if len(self._blocked) < self._policy.backfill_reservations and self._no_other_job_could_start(queue):
                self._bookings_deferred = True
                self._heads += queue.rows[queue.next :][
                    : self._policy.backfill_reservations - len(self._heads)
                ].tolist()
                queue.next = len(queue.rows)
                return True
            if len(self._blocked) < self._policy.backfill_reservations:
                booked = self._book(row, job, shape)
            elif self._may_preempt and len(self._waiting) < _MAX_PREEMPTING:
                self._waiting.append(BlockedJob(job, shape, float(self._snapshot.pending["limit"][row])))
        if (
            booked and len(self._blocked) < self._policy.backfill_reservations
        ):  # the next job may have the same shape
            queue.next += 1
            return True
        queue.drop(self._cannot_fit(queue, shape, job.project) | self._cannot_fit_anywhere(queue))
        return booked

    def _cannot_fit(self, queue: _Queue, shape: JobShape, project: str) -> Array:
        """The job that did not fit, and those that cannot fit for the same reason."""
        is_full = self._no_fit[queue.shape[queue.next]]
        longest = -1.0 if is_full else self._longest_that_fits(shape, project)
        result: Array = (queue.shape == queue.shape[queue.next]) & (queue.limit > longest)
        if self._windows:  # reservations block some projects only
            projects = self._snapshot.share_tree.project_of[queue.leaf]
            result &= projects == projects[queue.next]
        result[queue.next] = True
        leaf = int(queue.leaf[queue.next])
        self._failed_tries[leaf] += 1
        if self._failed_tries[leaf] >= _MAX_FAILED_TRIES:
            result |= queue.leaf == leaf
        return result

    def _cannot_fit_anywhere(self, queue: _Queue) -> Array:
        """The jobs that fit nowhere and get no booking."""
        most_waiting = _MAX_PREEMPTING if self._may_preempt else 0
        if len(self._blocked) < self._policy.backfill_reservations or len(self._waiting) < most_waiting:
            gets_no_booking = self._snapshot.pending["rank"][queue.rows] <= 0
        else:
            gets_no_booking = np.ones(len(queue.rows), bool)
            self._refresh_no_fit(queue)
        no_fit = self._no_fit[queue.shape]
        if self._failed_tries.total() >= self._tries_before_pass:
            self._tries_before_pass *= 2
            places = queue.next + np.flatnonzero((gets_no_booking & ~no_fit)[queue.next :])
            no_fit[places] = ~find_startable(queue.rows[places], self._snapshot, self._capacity, self._seconds)
        return np.asarray(no_fit & gets_no_booking)

    def _no_other_job_could_start(self, queue: _Queue) -> bool:
        """Then a booking would have no effect on this plan."""
        if self._may_preempt or self._books_always:
            return False
        self._refresh_no_fit(queue)
        return bool(self._no_fit[queue.shape[queue.next :]].all())

    def _refresh_no_fit(self, queue: _Queue) -> None:
        """Update `_no_fit` after further starts."""
        if self._starts_counted < len(self._starts):
            self._starts_counted = len(self._starts)
            numbers = np.flatnonzero(np.bincount(queue.shape[queue.next :]))
            shapes = [self._snapshot.shapes[number] for number in numbers.tolist()]
            self._no_fit[numbers] |= ~self._capacity.may_fit(shapes)

    def _book(self, row: int, job: Job, shape: JobShape) -> bool:
        if self._availability is None:
            self._availability = build_availability(self._snapshot, self._capacity, self._windows, self._ends)
            for other in self._blocked:
                if other.booking:
                    self._availability.add_booking(other.booking, other.shape, other.limit_seconds)
        length = float(self._snapshot.pending["limit"][row])
        booking = self._availability.find_earliest_booking(shape, job.project, length)
        if booking is None:
            return False
        booked_capacity = book_capacity_for_job(booking, shape, self._availability)
        self._capacity.bookings.append(booked_capacity)
        self._blocked.append(BlockedJob(job, shape, length, booking, booked_capacity))
        self._heads.append(row)
        if len(self._blocked) < self._policy.backfill_reservations:
            self._availability.add_booking(booking, shape, length)
        return True

    def _longest_that_fits(self, shape: JobShape, project: str) -> float:
        """The longest time limit with which this shape could start now before a booking; -1: none."""
        if self._capacity.is_surely_full(shape):
            return -1.0
        times = sorted({booking.start for booking in self._capacity.bookings if booking.start > self._seconds})
        too_long = bisect_left(  # what fits until a time also fits until an earlier one
            times, True, key=lambda time: self._capacity.find_placement(shape, project, time) is None
        )
        return times[too_long - 1] - self._seconds if too_long else -1.0

    def _booking_changes(self) -> tuple[tuple[JobId, ...], tuple[JobId, ...]]:
        """Jobs that keep their place at the head of the queue from now on, and jobs that lose it."""
        pending = self._snapshot.pending
        booked = np.flatnonzero(np.isfinite(pending["booked"]))
        if self._policy.order is not QueueOrdering.FAIR_SHARE or not self._was_tried:
            return (), ()
        heads, started = pending[self._heads], {start.job.id for start in self._starts}
        is_new = (
            np.isinf(heads["booked"])
            & (heads["rank"] > 0)
            & (heads["waiting"] <= self._seconds - _MIN_WAIT_SECONDS)
        )
        lost = np.setdiff1d(pending["job"][booked], heads["job"]).tolist()
        return tuple(heads["job"][is_new].tolist()), tuple(job_id for job_id in lost if job_id not in started)

    def _booked_starts(self) -> Callable[[], tuple[BookedStart, ...]]:
        if self._bookings_deferred:
            return partial(_compute_bookings, self._snapshot, self._policy, self._now)
        nodes = self._snapshot.node_table.nodes
        result = tuple(
            BookedStart(
                blocked.job.id,
                datetime.fromtimestamp(blocked.booking.start, UTC),
                tuple(nodes[node].name for node in blocked.booking.placement.nodes.tolist()),
            )
            for blocked in self._blocked
            if blocked.booking
        )
        return lambda: result

    def _wake_at(self) -> datetime | None:
        """The next time at which the plan changes without an event: a reservation begins or ends, overtime begins,
        the protection of a job ends, or a month begins. Now, if the maximum number of starts was reached."""
        if len(self._starts) >= _MAX_STARTS:
            return self._now
        times = [time for window in self._windows for time in (window.start, window.end) if time > self._seconds]
        if self._may_preempt:
            running = self._snapshot.running
            overtime = running["overtime"] & running["has_limit"]
            limits = (running["started"] + running["limit"])[overtime]
            times += limits[limits > self._seconds].tolist()
            protected = running["protected"][running["preemptible"] & (running["protected"] > self._seconds)]
            times += protected.tolist()
        if self._next_month:
            times.append(start_of_month(start_of_month(self._seconds) + _LONGEST_MONTH))
        return datetime.fromtimestamp(min(times), UTC) if times else None
