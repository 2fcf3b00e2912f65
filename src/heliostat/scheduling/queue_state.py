"""The state of the queue: all jobs that have not ended, as arrays that a plan can read at once."""

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from heliostat.models import ACTIVE_STATES, Job, JobId, JobState, Node, Reservation, TaskPlacement
from heliostat.models.gpu_types import card_type
from heliostat.scheduling.arrivals import ArrivalHistory
from heliostat.scheduling.duration_estimator import (
    DurationEstimator,
    RunDuration,
    run_duration_of,
    similarity_number,
)
from heliostat.scheduling.fair_share_tree import FairShareTree, Leaf, build_fair_share_tree
from heliostat.scheduling.job_shape import IndexedSet, JobShape
from heliostat.scheduling.keyed_array import Array, KeyedArray
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_order import HOUR_SECONDS, class_points, manager_points
from heliostat.scheduling.quotas import QuotaKey, count_occupied_gpus, priority_class_quota_key, quota_keys
from heliostat.scheduling.reservations import find_reservation_access, with_reservation_label
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import PENDING_DTYPE, RUNNING_DTYPE, Plan, Snapshot
from heliostat.scheduling.usage_ledger import UsageLedger


@dataclass(frozen=True, slots=True)
class PastUsage:
    """Usage from before this queue state was created."""

    user: str
    project: str
    priority_class: str
    start: float
    end: float
    charge_per_second: float
    gpu_hours: float


class QueueState:
    """Used by one thread only; its snapshots may be read by any thread."""

    def __init__(self, policy: SchedulingPolicy) -> None:
        self.policy = policy
        self.durations = DurationEstimator(policy.assumed_limit_seconds)
        self.arrivals = ArrivalHistory()
        self._learns = True
        self.node_table = NodeTable()
        self.accounts = ShareAccounts()
        self.reservations: tuple[Reservation, ...] = ()
        self.jobs: dict[JobId, Job] = {}
        self._free = self.node_table.total_resources()
        self._pending = KeyedArray(PENDING_DTYPE)
        self._limited: set[JobId] = set()  # pending jobs with an array limit or a class budget
        self._later: list[tuple[float, JobId]] = []  # heap of jobs by the time at which they become eligible
        self._running = KeyedArray(RUNNING_DTYPE)
        self._rows: dict[JobId, int] = {}  # number of rows of each active job
        self._active_since: dict[JobId, float] = {}  # when an active job was first observed as active
        self._held: dict[str, JobId] = {}
        self._shared_use: defaultdict[str, float] = defaultdict(float)
        self._shapes: IndexedSet[JobShape] = IndexedSet()
        self._leaves: IndexedSet[Leaf] = IndexedSet()
        self._tree: FairShareTree | None = None
        self._ledger = UsageLedger(policy.half_life_seconds)
        self._month: defaultdict[QuotaKey, float] = defaultdict(float)
        self._month_start = -math.inf

    def set_nodes(self, nodes: tuple[Node, ...]) -> None:
        if nodes is not self.node_table.nodes:
            self.node_table = NodeTable(nodes)
            self._rebuild_running()

    def set_accounts(self, accounts: ShareAccounts) -> None:
        if accounts is not self.accounts:
            self.accounts = accounts
            self._tree = None
            self._rebuild_pending()

    def set_reservations(self, reservations: tuple[Reservation, ...]) -> None:
        self.reservations = reservations

    def add_past_usage(self, past: Iterable[PastUsage], now: datetime) -> None:
        self._update_month(now.timestamp())
        for usage in past:
            self._ledger.charge(
                self._leaves.index_of((usage.project, usage.user)), usage.charge_per_second, usage.start, usage.end
            )
            if usage.start >= self._month_start:
                self._add_to_month(usage.user, usage.project, f"class {usage.priority_class}", usage.gpu_hours)
        self._tree = None

    def add_history(self, past: Iterable[RunDuration], submitted: Iterable[Job]) -> None:
        """Run times and submissions from before this queue state was created, oldest first; before the pending
        jobs are added."""
        self.durations.add_samples(past)
        for job in submitted:
            self.arrivals.add(job)

    def update_job(self, job: Job, now: datetime) -> None:
        """Add, replace or remove (when ended) a job. A job that stops running is charged for its resources, and
        similar jobs are expected to run as long."""
        before = self.jobs.pop(job.id, None)
        if before is not None:
            self._remove(before, job, now)
        if self._learns:
            self._learn(before, job)
        if job.is_terminal:
            return
        self.jobs[job.id] = job
        if job.state is JobState.PENDING:
            self._enqueue(job, now.timestamp())
        elif job.state in ACTIVE_STATES:
            self._active_since.setdefault(job.id, now.timestamp())
            self._add_running(job)

    def _enqueue(self, job: Job, now: float) -> None:
        """Add it to the queue, unless it waits for parents, a reservation or its begin time."""
        if job.parents_left or self._waits_for_reservation(job, now):
            return
        if job.begin_at is not None and job.begin_at.timestamp() > now:
            heapq.heappush(self._later, (job.begin_at.timestamp(), job.id))
            return
        self._pending.add(job.id, self._pending_row(job))
        if (
            job.array_limit is not None
            or self.policy.find_priority_class(job.priority_class).gpu_hours_per_month is not None
        ):
            self._limited.add(job.id)

    def _waits_for_reservation(self, job: Job, now: float) -> bool:
        """Whether its reservation is not active now; if it will be, the job enters the queue then."""
        if job.placement.reservation is None:
            return False
        access = find_reservation_access(job, self.reservations, datetime.fromtimestamp(now, UTC))
        if access.opens_at is not None:
            heapq.heappush(self._later, (access.opens_at.timestamp(), job.id))
        return not access.is_open

    def refresh_reservation_jobs(self, now: datetime) -> None:
        """After a reservation changed, began or ended: jobs inside one may enter or leave the queue."""
        pending = [job for job in self.jobs.values() if job.state is JobState.PENDING]
        for job in [job for job in pending if job.placement.reservation is not None]:
            self.update_job(job, now)

    def admit_eligible_jobs(self, now: float) -> None:
        """Move jobs whose begin time has passed into the queue."""
        while self._later and self._later[0][0] <= now:
            job = self.jobs.get(heapq.heappop(self._later)[1])
            if job and job.state is JobState.PENDING and job.id not in self._pending:
                self._enqueue(job, now)

    def update_bookings(self, plan: Plan, now: datetime) -> None:
        """Keep the new bookings of a plan, and forget those that it withdraws."""
        for job_ids, booked_at in ((plan.new_bookings, now), (plan.withdrawn_bookings, None)):
            for job_id in job_ids:
                self.update_job(replace(self.jobs[job_id], booked_at=booked_at), now)

    def active_jobs(self) -> list[Job]:
        """Jobs that are starting or running."""
        return [self.jobs[job_id] for job_id in self._rows]

    @property
    def eligible_count(self) -> int:
        """Number of pending jobs that may start."""
        return len(self._pending)

    def longest_wait_seconds(self, now: float) -> float:
        """Of the pending jobs that may start, with their earlier waits; 0: none waits."""
        return max(0.0, now - float(self._pending.rows["waiting"].min(initial=now)))

    def next_begin_at(self) -> datetime | None:
        """The next time at which a job becomes eligible without an event."""
        return datetime.fromtimestamp(self._later[0][0], UTC) if self._later else None

    def snapshot(self, now: datetime, ended: Collection[JobId] = (), delayed: Collection[JobId] = ()) -> Snapshot:
        """A copy in which the `ended` jobs have ended and the `delayed` jobs are not pending."""
        live = self.live_snapshot(now)
        pending, running = live.pending.copy(), live.running.copy()
        held, shared_use, free = dict(self._held), dict(self._shared_use), self._free.copy()
        if delayed:
            pending = pending[~np.isin(pending["job"], list(delayed))]
        if ended:
            seconds = now.timestamp()
            has_ended = np.isin(running["job"], list(ended))
            ended_rows, running = running[has_ended], running[~has_ended]
            free.add_rows(ended_rows["node"], ended_rows)
            usage = ended_rows["rate"] * self._ledger.decayed_seconds(
                np.minimum(ended_rows["started"], seconds), seconds
            )
            live.past_usage[:] += np.bincount(ended_rows["leaf"], usage, len(live.past_usage))
            for job_id in self._rows.keys() & set(ended):
                self._release(self.jobs[job_id], held, shared_use)
        return replace(
            live,
            pending=pending,
            running=running,
            jobs=self.jobs.copy(),
            free=free,
            held_devices=held,
            shared_device_use=shared_use,
            month_gpu_hours=dict(self._month),
        )

    def live_snapshot(self, now: datetime) -> Snapshot:
        """A view of the current state; valid until the next change."""
        seconds = now.timestamp()
        self._update_month(seconds)
        self.admit_eligible_jobs(seconds)
        if self._tree is None or len(self._tree.leaves) != len(self._leaves.items):
            self._tree = build_fair_share_tree(tuple(self._leaves.items), self.accounts)
        return Snapshot(
            node_table=self.node_table,
            pending=self._pending.rows,
            running=self._running.rows,
            jobs=self.jobs,
            shapes=self._shapes.items,
            share_tree=self._tree,
            free=self._free,
            past_usage=self._ledger.decayed_usage(len(self._leaves.items), seconds),
            current_usage=partial(self._present_usage, now=seconds),
            reserved_usage=partial(self._reserved_usage, now=seconds),
            held_devices=self._held,
            shared_device_use=self._shared_use,
            accounts=self.accounts,
            reservations=self.reservations,
            month_gpu_hours=self._month,
            month_start=self._month_start,
            has_array_or_budget_limits=bool(self._limited),
            next_begin_at=self.next_begin_at(),
        )

    def copy(self) -> "QueueState":
        """An independent copy for forecasts. What happens in it is not learnt: it has not really happened."""
        other = QueueState(self.policy)
        other.durations, other.arrivals, other._learns = self.durations.copy(), self.arrivals.copy(), False
        other.node_table, other.accounts, other.reservations = self.node_table, self.accounts, self.reservations
        other._leaves, other._shapes, other._tree = self._leaves.copy(), self._shapes.copy(), self._tree
        other._ledger = self._ledger.copy()
        other._month, other._month_start = self._month.copy(), self._month_start
        other.jobs, other._rows, other._active_since = (
            self.jobs.copy(),
            self._rows.copy(),
            self._active_since.copy(),
        )
        other._pending, other._running = self._pending.copy(), self._running.copy()
        other._limited, other._later = self._limited.copy(), self._later.copy()
        other._held, other._shared_use, other._free = self._held.copy(), self._shared_use.copy(), self._free.copy()
        return other

    def _remove(self, before: Job, after: Job, now: datetime) -> None:
        if before.id in self._pending:
            self._pending.remove(before.id)
            self._limited.discard(before.id)
        if after.state not in ACTIVE_STATES:
            self._active_since.pop(before.id, None)
        rows = self._rows.pop(before.id, 0)
        for number in range(rows):
            self._free.take_row(self._running.row((before.id, number)), -1)
            self._running.remove((before.id, number))
        if rows:
            self._release(before, self._held, self._shared_use)
        if after.state in ACTIVE_STATES or not (rows or before.state is JobState.PENDING):
            return
        # Start and end may be reported together; from an engine's own queue even together with leaving that queue.
        if started_at := before.started_at or after.started_at:
            charged = replace(before if rows else after, credit_gpu_hours=after.credit_gpu_hours)
            self._charge(charged, started_at, after.ended_at or now)

    def _charge(self, job: Job, started_at: datetime, ended_at: datetime) -> None:
        start, end = started_at.timestamp(), ended_at.timestamp()
        self._update_month(end)
        rate = self._rate(job)
        if job.credit_gpu_hours and end > start:
            rate = max(0.0, rate - self._credit(job) / (end - start))
        self._ledger.charge(self._leaves.index_of((job.project, job.user)), rate, start, max(start, end))
        hours = self._gpus(job) * max(0.0, end - max(start, self._month_start)) / HOUR_SECONDS
        self._add_to_month(job.user, job.project, priority_class_quota_key(job)[0], hours)

    def _learn(self, before: Job | None, job: Job) -> None:
        """Forecasts expect similar arrivals and run times; the order of the queue depends on run times."""
        if before is None and job.state is JobState.PENDING:
            self.arrivals.add(job)
        duration = run_duration_of(job)
        if duration is None:
            return
        self.durations.add_samples([duration])
        rows = self._pending.rows
        similar = rows["similar"] == similarity_number(job)
        if similar.any():
            rows["expected"][similar] = self.durations.expected_seconds(job, rows["limit"][similar])

    def _pending_row(self, job: Job) -> tuple[object, ...]:
        limit = float(job.time_limit_seconds or self.policy.assumed_limit_seconds)
        rate = self._rate(job)
        priority_class = self.policy.find_priority_class(job.priority_class)
        return (
            job.id,
            class_points(job, self.policy),
            manager_points(job),
            rate,
            self.durations.expected_seconds(job, limit),
            similarity_number(job),
            job.queued_since.timestamp() - job.waited_seconds,
            limit,
            self._shapes.index_of(self._shape(job)),
            self._leaves.index_of((job.project, job.user)),
            priority_class.rank,
            job.preemptible or priority_class.preemptible,
            self._gpus(job),
            rate * min(limit, self.policy.max_advance_seconds),
            -1 if job.array_id is None else job.array_id,
            job.booked_at.timestamp() if job.is_booked and job.booked_at else math.inf,
        )

    def _add_running(self, job: Job) -> None:
        """One row for each node and kind of device."""
        groups: defaultdict[tuple[int, int], list[TaskPlacement]] = defaultdict(list)
        for place in job.places or (TaskPlacement(job.node or "", job.devices),):
            if place.node in self.node_table.index_by_name:
                kind = self.node_table.kind_of_device.get(place.devices[0], -1) if place.devices else -1
                groups[self.node_table.index_by_name[place.node], kind].append(place)
        for number, ((node, kind), places) in enumerate(groups.items()):
            row = self._running.add((job.id, number), self._running_row(job, node, kind, places))
            self._free.take_row(row)
        self._rows[job.id] = len(groups)
        if 0 < job.resources.gpus < 1:
            for uuid in job.devices:
                self._shared_use[uuid] += job.resources.gpus
        else:
            self._held.update(dict.fromkeys(job.devices, job.id))

    def _running_row(self, job: Job, node: int, kind: int, places: list[TaskPlacement]) -> tuple[object, ...]:
        requested, count = job.resources, len(places)
        priority_class = self.policy.find_priority_class(job.priority_class)
        exclusive = job.placement.exclusive
        started = job.started_at.timestamp() if job.started_at else self._active_since[job.id]
        return (
            job.id,
            node,
            kind,
            0 if 0 < requested.gpus < 1 else self._count_usable(places, kind),
            self.node_table.cpus[node] if exclusive else count * requested.cpus,
            self.node_table.memory_mib[node] if exclusive else count * requested.memory_mib,
            started,
            float(job.time_limit_seconds or 0),
            job.time_limit_seconds is not None,
            self._leaves.index_of((job.project, job.user)),
            priority_class.rank,
            max(count * requested.cards, float(self.node_table.cards[node]) if exclusive else 0.0),
            self._rate(job) * count / job.placement.tasks,
            job.checkpointed_at.timestamp() if job.checkpointed_at else math.nan,
            job.preemptible or priority_class.preemptible,
            started + self.policy.protection_seconds_for(job, started),
            job.overtime,
            {None: math.inf, "kill": 0.0}.get(job.stop_requested, job.spec.grace_seconds),
            -1 if job.array_id is None else job.array_id,
            started - job.waited_seconds,
        )

    def _count_usable(self, places: list[TaskPlacement], kind: int) -> int:
        """Number of these devices that are free after the job has ended; unavailable devices are not."""
        node_table, uuids = self.node_table, (uuid for place in places for uuid in place.devices)
        return sum(
            node_table.kind_of_device.get(uuid) == kind and uuid not in node_table.unusable_devices
            for uuid in uuids
        )

    def _release(self, job: Job, held: dict[str, JobId], shared_use: dict[str, float]) -> None:
        for uuid in job.devices:
            if held.get(uuid) == job.id:
                del held[uuid]
            elif uuid in shared_use:
                shared_use[uuid] -= job.resources.gpus
                if shared_use[uuid] < 1e-6:
                    del shared_use[uuid]

    def _present_usage(self, running: Array, now: float) -> Array:
        """Usage of running jobs so far and soon, so that a user with new large jobs counts as served."""
        so_far = self._ledger.decayed_seconds(np.minimum(running["started"], now), now)
        return np.asarray(running["rate"] * so_far + self._reserved_usage(running, now))

    def _reserved_usage(self, running: Array, now: float) -> Array:
        """What running jobs may still use in the time that is charged in advance."""
        limit = np.where(running["has_limit"], running["limit"], self.policy.assumed_limit_seconds)
        left = np.clip(running["started"] + limit - now, 0.0, self.policy.max_advance_seconds)
        return np.asarray(running["rate"] * left)

    def _add_to_month(self, user: str, project: str, class_name: str, hours: float) -> None:
        for scope in (*quota_keys(user, project, self.accounts), (class_name, project)):
            self._month[scope] += hours

    def _update_month(self, now: float) -> None:
        month_start = start_of_month(now)
        if month_start != self._month_start:
            self._month.clear()
            self._month_start = month_start

    def _shape(self, job: Job) -> JobShape:
        return JobShape(
            job.resources,
            with_reservation_label(job.placement),
            self.accounts.project_or_default(job.project).data_class,
        )

    def _rate(self, job: Job) -> float:
        gpu_type = self._gpu_type(job)
        if job.placement.exclusive:
            card = card_type(
                gpu_type or job.resources.gpu_type or ""
            )  # a MIG slice also occupies the rest of its card
            requested = replace(job.resources, gpus=self._gpus(job) / job.placement.tasks, gpu_type=card)
            return self.policy.charges.charge_per_second(requested, job.placement.tasks)
        return self.policy.charges.charge_per_second(job.resources, job.placement.tasks, gpu_type)

    def _credit(self, job: Job) -> float:
        """What it is not charged for its GPUs, at their rate."""
        return job.credit_gpu_hours * self.policy.charges.gpu_charge(self._gpu_type(job) or job.resources.gpu_type)

    def _gpu_type(self, job: Job) -> str | None:
        kind = self.node_table.kind_of_device.get(job.devices[0]) if job.devices else None
        return None if kind is None else self.node_table.device_kinds[kind].type

    def _gpus(self, job: Job) -> float:
        return count_occupied_gpus(job, self.node_table, self.accounts)

    def _rebuild_pending(self) -> None:
        """Rows refer to shapes, which contain the data class of the project."""
        before, self._pending = self._pending, KeyedArray(PENDING_DTYPE)
        for job in self.jobs.values():
            if job.id in before:
                self._pending.add(job.id, self._pending_row(job))

    def _rebuild_running(self) -> None:
        """Rows refer to nodes by number."""
        self._running = KeyedArray(RUNNING_DTYPE)
        self._rows, self._held, self._shared_use = {}, {}, defaultdict(float)
        self._free = self.node_table.total_resources()
        for job in self.jobs.values():
            if job.state in ACTIVE_STATES:
                self._add_running(job)


def start_of_month(now: float) -> float:
    day = datetime.fromtimestamp(now, UTC)
    return datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()
