"""Decide what starts where: a pure function of the snapshot.

The queue is walked in its order. What fits starts. The first that do not fit are booked for the time at which
running jobs, by their limits, will have made room; whoever comes after them may start only where that does not
delay them. Capacity only shrinks while a plan is made, so what does not fit once is not tried again: the cost of a
plan grows with the number of starts and of different shapes, hardly with the length of the queue.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.availability import (
    FutureAvailability,
    book_capacity_for_job,
    build_availability,
    expected_ends,
)
from heliostat.scheduling.capacity import Capacity, is_feasible
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.preemption import BlockedJob, select_jobs_to_stop
from heliostat.scheduling.queue_order import sort_pending
from heliostat.scheduling.queue_state import start_of_month
from heliostat.scheduling.quotas import ArrayLimits, QuotaTracker
from heliostat.scheduling.reservations import book_capacity_for_window, list_reservation_windows
from heliostat.scheduling.snapshot import BookedStart, Plan, PlannedStart, PlannedStop, Snapshot

_LONGEST_MONTH = 31 * 86400.0
_MOST_STARTS = 2500  # in one plan, so that it is made within a second
_MOST_FRUITLESS = 100  # tries of one user's jobs in one plan: who asks for many different things waits longer
_MOST_WAITING = 3  # blocked jobs beyond the booked ones for which somebody may be sent away


def plan(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> Plan:
    """What to start and to stop now."""
    made, begin = _plan(snapshot, policy, now), snapshot.next_begin_at
    if begin is None:
        return made
    return replace(made, wake_at=begin if made.wake_at is None else min(made.wake_at, begin))


def _plan(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> Plan:
    if not len(snapshot.pending):
        return Plan()
    if _nothing_can_happen(snapshot):
        return Plan(compute_booked_starts=partial(_booked, snapshot, policy, now))
    return _Planner(snapshot, policy, now).made()


def _booked(snapshot: Snapshot, policy: SchedulingPolicy, now: datetime) -> tuple[BookedStart, ...]:
    """For whom room is kept, also if nobody else could take it."""
    return _Planner(snapshot, policy, now, books_always=True).made().booked_starts


def _nothing_can_happen(snapshot: Snapshot) -> bool:
    """A quick look at a full cluster: nobody has room, nobody may be sent away, and time alone changes nothing."""
    machines = snapshot.node_table
    if snapshot.reservations or snapshot.shared_device_use or machines.unusable_devices:
        return False
    if snapshot.has_preemptible:
        return False
    most = snapshot.largest_free
    waiting = np.flatnonzero(np.bincount(snapshot.pending["shape"])).tolist()
    return all(most.is_too_small_for(snapshot.shapes[number], machines) for number in waiting)


@dataclass(slots=True)
class _Queue:
    """What is left to try, in order. Rows of the pending jobs."""

    rows: Array
    shape: Array
    limit: Array
    leaf: Array
    array: Array
    next: int = 0

    def drop(self, hopeless: Array) -> None:
        """Of those that come next, leave these out."""
        keep = ~hopeless[self.next :]
        for name in ("rows", "shape", "limit", "leaf", "array"):
            setattr(self, name, getattr(self, name)[self.next :][keep])
        self.next = 0


class _Planner:
    def __init__(
        self, snapshot: Snapshot, policy: SchedulingPolicy, now: datetime, books_always: bool = False
    ) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._books_always = books_always
        self._left_unbooked = False
        self._seconds = now.timestamp()
        self._rooms = Capacity(snapshot)
        self._quotas = QuotaTracker(snapshot, policy, self._seconds)
        self._windows = list_reservation_windows(snapshot, now)
        self._arrays = ArrayLimits(snapshot)
        self._starts: list[PlannedStart] = []
        self._known_ends: Array | None = None
        self._blocked: list[BlockedJob] = []  # with room booked
        self._waiting: list[BlockedJob] = []  # the first of the others
        self._horizon: FutureAvailability | None = None
        self._next_month = False
        self._full, self._possible, self._all_possible = self._shapes_without_room()
        self._fruitless: Counter[int] = Counter()  # tries, by leaf
        self._starts_seen = 0  # by what is known to be full
        self._sends_away = snapshot.has_preemptible
        last_end = self._seconds + float(snapshot.pending["limit"].max(initial=0.0)) if self._windows else 0.0
        for window in self._windows:
            if window.start > last_end:  # in order of time: who starts now will be gone by then
                break
            self._rooms.bookings.append(
                book_capacity_for_window(window, snapshot, self._rooms, self._ends, self._seconds)
            )

    def made(self) -> Plan:
        if self._sends_away or self._books_always or not self._full.all():
            self._walk()
        else:
            self._left_unbooked = True
        stops: tuple[PlannedStop, ...] = ()
        if self._sends_away:
            blocked = [*self._blocked, *self._waiting]
            stops = select_jobs_to_stop(self._snapshot, self._policy, self._rooms, blocked, self._seconds)
        return Plan(tuple(self._starts), stops, self._wake_at(), self._heads())

    @property
    def _ends(self) -> Array:
        if self._known_ends is None:
            assumed = self._policy.assumed_limit_seconds
            self._known_ends = expected_ends(self._snapshot.running, assumed, self._seconds)
        return self._known_ends

    def _shapes_without_room(self) -> tuple[Array, Array, bool]:
        """By number of shape, of those that wait: whether it fits nowhere now; whether it would on empty nodes."""
        shapes, machines = self._snapshot.shapes, self._snapshot.node_table
        full, possible = np.ones(len(shapes), bool), np.zeros(len(shapes), bool)
        numbers = np.flatnonzero(np.bincount(self._snapshot.pending["shape"], minlength=len(shapes)))
        waiting = [shapes[number] for number in numbers.tolist()]
        possible[numbers] = [is_feasible(shape, machines) for shape in waiting]
        full[numbers] = ~(possible[numbers] & self._rooms.may_fit(waiting))
        return full, possible, bool(possible[numbers].all())

    def _walk(self) -> None:
        rows = sort_pending(self._snapshot, self._policy, self._seconds)
        if not self._all_possible:
            rows = rows[self._possible[self._snapshot.pending["shape"][rows]]]
        queue = _Queue(*self._worth_trying(rows))
        while queue.next < len(queue.rows):
            blocked = self._try(queue, int(queue.rows[queue.next]))
            if (blocked and not self._policy.backfill) or len(self._starts) >= _MOST_STARTS:
                return

    def _worth_trying(self, rows: Array) -> tuple[Array, Array, Array, Array, Array]:
        """Those that might start, and of the others the first, for which room is to be booked."""
        pending = self._snapshot.pending
        if self._only_room_matters():
            full = self._full[pending["shape"]][rows]
            looked_at = self._policy.reservations + (_MOST_WAITING if self._sends_away else 0)
            first = np.cumsum(full & (pending["rank"][rows] > 0)) <= looked_at
            rows = rows[first | ~full]
        columns = pending[rows]
        return rows, columns["shape"], columns["limit"], columns["leaf"], columns["array"]

    def _only_room_matters(self) -> bool:
        """No job is held back by its array, a quota or a budget: whoever has no room is blocked for want of it."""
        return not (self._quotas.has_any or self._snapshot.has_array_or_budget_limits)

    def _try(self, queue: _Queue, row: int) -> bool:
        """Start it, or leave it out with those for whom the same holds. True: room is booked for it."""
        values = self._snapshot.pending[row]
        job = self._snapshot.jobs[int(values["job"])]
        number = int(values["shape"])
        shape = self._snapshot.shapes[number]
        if self._is_held_back(queue, job, float(values["gpus"])):
            return False
        end = self._seconds + float(values["limit"])
        is_full = self._full[number] or self._rooms.is_surely_full(shape)
        fit = None if is_full else self._rooms.find_placement(shape, job.project, end)
        if fit is None:
            return self._block(queue, row, job, shape)
        self._starts.append(self._rooms.allocate(job, shape, fit, end))
        self._quotas.add_started_job(job, float(values["gpus"]))
        self._arrays.add_started_job(job)
        self._horizon = None
        queue.next += 1
        return False

    def _is_held_back(self, queue: _Queue, job: Job, gpus: float) -> bool:
        """By its array or a quota."""
        if self._arrays.is_at_limit(job):
            queue.drop(queue.array == job.array_id)
            return True
        refusal = self._quotas.find_violation(job, gpus)
        if refusal is None:
            return False
        self._next_month |= refusal.until_next_month
        ranks, asked = self._snapshot.pending["rank"][queue.rows], self._snapshot.pending["gpus"][queue.rows]
        alike = (queue.leaf == queue.leaf[queue.next]) & (ranks == ranks[queue.next])
        queue.drop(alike & (asked >= gpus))
        return True

    def _block(self, queue: _Queue, row: int, job: Job, shape: JobShape) -> bool:
        """Book room for it if it is among the first; leave out those of its shape that would run as long."""
        booked = False
        if self._snapshot.pending["rank"][row] > 0:
            if len(self._blocked) < self._policy.reservations and self._nobody_else_could_start(queue):
                self._left_unbooked = True
                queue.next = len(queue.rows)
                return True
            if len(self._blocked) < self._policy.reservations:
                booked = self._book(row, job, shape)
            elif self._sends_away and len(self._waiting) < _MOST_WAITING:
                self._waiting.append(BlockedJob(job, shape, float(self._snapshot.pending["limit"][row])))
        if booked and len(self._blocked) < self._policy.reservations:  # the next may be just like it
            queue.next += 1
            return True
        queue.drop(self._hopeless(queue, shape, job.project) | self._without_consequence(queue))
        return booked

    def _hopeless(self, queue: _Queue, shape: JobShape, project: str) -> Array:
        """The one that was tried in vain, and those for whom the same holds."""
        is_full = self._full[queue.shape[queue.next]]
        longest = -1.0 if is_full else self._longest_that_fits(shape, project)
        found: Array = (queue.shape == queue.shape[queue.next]) & (queue.limit > longest)
        if self._windows:  # which concern some projects and not others
            projects = self._snapshot.share_tree.project_of[queue.leaf]
            found &= projects == projects[queue.next]
        found[queue.next] = True
        leaf = int(queue.leaf[queue.next])
        self._fruitless[leaf] += 1
        if self._fruitless[leaf] >= _MOST_FRUITLESS:
            found |= queue.leaf == leaf
        return found

    def _without_consequence(self, queue: _Queue) -> Array | bool:
        """Once room is booked for all for whom it can be, those that fit nowhere."""
        most_waiting = _MOST_WAITING if self._sends_away else 0
        if len(self._blocked) < self._policy.reservations or len(self._waiting) < most_waiting:
            return False
        self._look_again(queue)
        return np.asarray(self._full[queue.shape])

    def _nobody_else_could_start(self, queue: _Queue) -> bool:
        """Then it makes no difference now for when room is booked."""
        if self._sends_away or self._books_always:
            return False
        self._look_again(queue)
        return bool(self._full[queue.shape[queue.next :]].all())

    def _look_again(self, queue: _Queue) -> None:
        """What was started since the last look may have left no room for some."""
        if self._starts_seen < len(self._starts):
            self._starts_seen = len(self._starts)
            numbers = np.flatnonzero(np.bincount(queue.shape[queue.next :]))
            shapes = [self._snapshot.shapes[number] for number in numbers.tolist()]
            self._full[numbers] |= ~self._rooms.may_fit(shapes)

    def _book(self, row: int, job: Job, shape: JobShape) -> bool:
        if self._horizon is None:
            self._horizon = build_availability(self._snapshot, self._rooms, self._windows, self._ends)
            for other in self._blocked:
                if other.booking:
                    self._horizon.add_booking(other.booking, other.shape, other.limit_seconds)
        length = float(self._snapshot.pending["limit"][row])
        booking = self._horizon.find_earliest_booking(shape, job.project, length)
        if booking is None:
            return False
        keep = book_capacity_for_job(booking, shape, self._horizon)
        self._rooms.bookings.append(keep)
        self._blocked.append(BlockedJob(job, shape, length, booking, keep))
        if len(self._blocked) < self._policy.reservations:
            self._horizon.add_booking(booking, shape, length)
        return True

    def _longest_that_fits(self, shape: JobShape, project: str) -> float:
        """What limit would let a job of this shape start before what is kept for others; -1: none."""
        if not self._rooms.is_surely_full(shape):
            times = {keep.start for keep in self._rooms.bookings if keep.start > self._seconds}
            for time in sorted(times, reverse=True):
                if self._rooms.find_placement(shape, project, time) is not None:
                    return time - self._seconds
        return -1.0

    def _heads(self) -> Callable[[], tuple[BookedStart, ...]]:
        if self._left_unbooked:
            return partial(_booked, self._snapshot, self._policy, self._now)
        nodes = self._snapshot.node_table.nodes
        found = tuple(
            BookedStart(
                blocked.job.id,
                datetime.fromtimestamp(blocked.booking.start, UTC),
                tuple(nodes[node].name for node in blocked.booking.placement.nodes.tolist()),
            )
            for blocked in self._blocked
            if blocked.booking
        )
        return lambda: found

    def _wake_at(self) -> datetime | None:
        """When time alone makes a difference: a window opens or closes, overtime begins, somebody may be sent away
        again, a month. At once, if more may start than one plan looks after."""
        if len(self._starts) >= _MOST_STARTS:
            return self._now
        times = [time for window in self._windows for time in (window.start, window.end) if time > self._seconds]
        if self._sends_away:
            running = self._snapshot.running
            overtime = running["overtime"] & running["has_limit"]
            limits = (running["started"] + running["limit"])[overtime]
            times += limits[limits > self._seconds].tolist()
            protected = running["protected"][running["preemptible"] & (running["protected"] > self._seconds)]
            times += protected.tolist()
        if self._next_month:
            times.append(start_of_month(start_of_month(self._seconds) + _LONGEST_MONTH))
        return datetime.fromtimestamp(min(times), UTC) if times else None
