"""A picture of all jobs that are not over, kept as columns so that a plan need not read them one by one."""

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

import numpy as np

from heliostat.models import ACTIVE, Job, JobId, JobState, Node, Place, Reservation
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.columns import Array, Columns
from heliostat.scheduling.ledger import Ledger
from heliostat.scheduling.machines import Machines
from heliostat.scheduling.order import HOUR, fixed_points, inner_points
from heliostat.scheduling.policy import Policy
from heliostat.scheduling.quotas import Scope, class_scope, gpus_kept, scopes_of
from heliostat.scheduling.reservations import inside, opening_of
from heliostat.scheduling.shapes import Numbers, Shape
from heliostat.scheduling.shares import Leaf, Tree, tree_of
from heliostat.scheduling.snapshot import PENDING, RUNNING, Snapshot


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used in the past, before the board began to count."""

    user: str
    project: str
    priority_class: str
    start: float
    end: float
    rate: float  # charge per second
    gpu_hours: float


class Board:
    """Belongs to one thread; its snapshots may be read by all."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.machines = Machines()
        self.accounts = Accounts()
        self.reservations: tuple[Reservation, ...] = ()
        self.jobs: dict[JobId, Job] = {}
        self._free = self.machines.empty()
        self._pending = Columns(PENDING)
        self._held_back: set[JobId] = (
            set()
        )  # pending jobs that their array or the budget of their class may hold back
        self._later: list[tuple[float, JobId]] = []  # a heap: when those that may not begin yet may
        self._running = Columns(RUNNING)
        self._rows: dict[JobId, int] = {}  # of active jobs: how many rows they have
        self._began: dict[JobId, float] = {}  # when an active job was first seen as such
        self._held: dict[str, JobId] = {}
        self._parts: defaultdict[str, float] = defaultdict(float)
        self._shapes: Numbers[Shape] = Numbers()
        self._leaves: Numbers[Leaf] = Numbers()
        self._tree: Tree | None = None
        self._ledger = Ledger(policy.half_life_seconds)
        self._month: defaultdict[Scope, float] = defaultdict(float)
        self._month_began = -math.inf

    def set_nodes(self, nodes: tuple[Node, ...]) -> None:
        if nodes is not self.machines.nodes:
            self.machines = Machines(nodes)
            self._renew_running()

    def set_accounts(self, accounts: Accounts) -> None:
        if accounts is not self.accounts:
            self.accounts = accounts
            self._tree = None
            self._renew_pending()

    def set_reservations(self, reservations: tuple[Reservation, ...]) -> None:
        self.reservations = reservations

    def add_usage(self, past: Iterable[Usage], now: datetime) -> None:
        """What happened before."""
        self._turn_month(now.timestamp())
        for used in past:
            self._ledger.charge(self._leaves.of((used.project, used.user)), used.rate, used.start, used.end)
            if used.start >= self._month_began:
                self._add_to_month(used.user, used.project, f"class {used.priority_class}", used.gpu_hours)
        self._tree = None

    def put(self, job: Job, now: datetime) -> None:
        """The job as it is from now on. One that stops running is charged for what it held."""
        before = self.jobs.pop(job.id, None)
        if before is not None:
            self._take_out(before, job, now)
        if job.is_over:
            return
        self.jobs[job.id] = job
        if job.state is JobState.PENDING:
            self._let_wait(job, now.timestamp())
        elif job.state in ACTIVE:
            self._began.setdefault(job.id, now.timestamp())
            self._add_running(job)

    def _let_wait(self, job: Job, now: float) -> None:
        """In line, unless it waits for its parents or for its time to begin."""
        if job.parents_left or self._is_closed_to(job, now):
            return
        if job.begin_at is not None and job.begin_at.timestamp() > now:
            heapq.heappush(self._later, (job.begin_at.timestamp(), job.id))
            return
        self._pending.add(job.id, self._pending_row(job))
        if job.array_limit is not None or self.policy.class_of(job.priority_class).gpu_hours_per_month is not None:
            self._held_back.add(job.id)

    def _is_closed_to(self, job: Job, now: float) -> bool:
        """Its reservation does not hold now; if it will, it is let in then."""
        if job.placement.reservation is None:
            return False
        opening = opening_of(job, self.reservations, datetime.fromtimestamp(now, UTC))
        if opening.opens_at is not None:
            heapq.heappush(self._later, (opening.opens_at.timestamp(), job.id))
        return not opening.is_open

    def renew_reserved(self, now: datetime) -> None:
        """Reservations have changed, begun or ended: who waits for one may be in line now, or no longer."""
        waiting = [job for job in self.jobs.values() if job.state is JobState.PENDING]
        for job in [job for job in waiting if job.placement.reservation is not None]:
            self.put(job, now)

    def let_in(self, now: float) -> None:
        """Those whose time to begin has come; others may have gone meanwhile."""
        while self._later and self._later[0][0] <= now:
            job = self.jobs.get(heapq.heappop(self._later)[1])
            if job and job.state is JobState.PENDING and job.id not in self._pending:
                self._let_wait(job, now)

    def active(self) -> list[Job]:
        """Those that start or run."""
        return [self.jobs[job_id] for job_id in self._rows]

    @property
    def in_line(self) -> int:
        """How many wait in line."""
        return len(self._pending)

    def next_begin(self) -> datetime | None:
        """When a job takes its place in line though nothing happens."""
        return datetime.fromtimestamp(self._later[0][0], UTC) if self._later else None

    def snapshot(self, now: datetime, ended: Collection[JobId] = (), delayed: Collection[JobId] = ()) -> Snapshot:
        """As it will be once these have ended; the delayed are not to be tried yet."""
        seen = self.glance(now)
        pending, running = seen.pending.copy(), seen.running.copy()
        held, parts, free = dict(self._held), dict(self._parts), self._free.copy()
        if delayed:
            pending = pending[~np.isin(pending["job"], list(delayed))]
        if ended:
            seconds = now.timestamp()
            is_over = np.isin(running["job"], list(ended))
            over, running = running[is_over], running[~is_over]
            free.add(over["node"], over)
            used = over["rate"] * self._ledger.faded(np.minimum(over["started"], seconds), seconds)
            seen.past_usage[:] += np.bincount(over["leaf"], used, len(seen.past_usage))  # is not forgotten
            for job_id in self._rows.keys() & set(ended):
                self._release(self.jobs[job_id], held, parts)
        return replace(
            seen,
            pending=pending,
            running=running,
            jobs=self.jobs.copy(),
            free=free,
            held=held,
            parts=parts,
            month=dict(self._month),
        )

    def glance(self, now: datetime) -> Snapshot:
        """As it is. It shares what the board holds: good until the next change."""
        seconds = now.timestamp()
        self._turn_month(seconds)
        self.let_in(seconds)
        if self._tree is None or len(self._tree.leaves) != len(self._leaves.things):
            self._tree = tree_of(tuple(self._leaves.things), self.accounts)
        return Snapshot(
            machines=self.machines,
            pending=self._pending.rows,
            running=self._running.rows,
            jobs=self.jobs,
            shapes=self._shapes.things,
            tree=self._tree,
            free=self._free,
            past_usage=self._ledger.usage(len(self._leaves.things), seconds),
            present_usage=partial(self._present_usage, now=seconds),
            held=self._held,
            parts=self._parts,
            accounts=self.accounts,
            reservations=self.reservations,
            month=self._month,
            month_began=self._month_began,
            others_matter=bool(self._held_back),
            next_begin=self.next_begin(),
        )

    def fork(self) -> "Board":
        """Another board that goes its own way from here."""
        other = Board(self.policy)
        other.machines, other.accounts, other.reservations = self.machines, self.accounts, self.reservations
        other._leaves, other._shapes, other._tree = self._leaves.fork(), self._shapes.fork(), self._tree
        other._ledger = self._ledger.copy()
        other._month, other._month_began = self._month.copy(), self._month_began
        other.jobs, other._rows, other._began = self.jobs.copy(), self._rows.copy(), self._began.copy()
        other._pending, other._running = self._pending.fork(), self._running.fork()
        other._held_back, other._later = self._held_back.copy(), self._later.copy()
        other._held, other._parts, other._free = self._held.copy(), self._parts.copy(), self._free.copy()
        return other

    def _take_out(self, before: Job, after: Job, now: datetime) -> None:
        if before.id in self._pending:
            self._pending.remove(before.id)
            self._held_back.discard(before.id)
        if after.state not in ACTIVE:
            self._began.pop(before.id, None)
        rows = self._rows.pop(before.id, 0)
        for number in range(rows):
            self._free.take(self._running.row((before.id, number)), -1)
            self._running.remove((before.id, number))
        if rows:
            self._release(before, self._held, self._parts)
        if after.state in ACTIVE or not (rows or before.state is JobState.PENDING):
            return
        # Its start and its end may come together, in another's queue even with its leaving that.
        if started_at := before.started_at or after.started_at:
            self._charge(before if rows else after, started_at, after.ended_at or now)

    def _charge(self, job: Job, started_at: datetime, ended_at: datetime) -> None:
        start, end = started_at.timestamp(), ended_at.timestamp()
        self._turn_month(end)
        self._ledger.charge(self._leaves.of((job.project, job.user)), self._rate(job), start, max(start, end))
        hours = self._gpus(job) * max(0.0, end - max(start, self._month_began)) / HOUR
        self._add_to_month(job.user, job.project, class_scope(job)[0], hours)

    def _pending_row(self, job: Job) -> tuple[object, ...]:
        limit = float(job.time_limit_seconds or self.policy.assumed_limit_seconds)
        cost = self._rate(job) * limit
        priority_class = self.policy.class_of(job.priority_class)
        return (
            job.id,
            fixed_points(job, self.policy, cost),
            inner_points(job),
            job.in_line_since.timestamp() - job.waited_seconds,
            limit,
            self._shapes.of(self._shape(job)),
            self._leaves.of((job.project, job.user)),
            priority_class.rank,
            job.preemptible or priority_class.preemptible,
            self._gpus(job),
            cost,
            -1 if job.array_id is None else job.array_id,
        )

    def _add_running(self, job: Job) -> None:
        """One row for each node and kind of device."""
        groups: defaultdict[tuple[int, int], list[Place]] = defaultdict(list)
        for place in job.places or (Place(job.node or "", job.devices),):
            if place.node in self.machines.index:
                kind = self.machines.kind_of.get(place.devices[0], -1) if place.devices else -1
                groups[self.machines.index[place.node], kind].append(place)
        for number, ((node, kind), places) in enumerate(groups.items()):
            row = self._running.add((job.id, number), self._running_row(job, node, kind, places))
            self._free.take(row)
        self._rows[job.id] = len(groups)
        if 0 < job.resources.gpus < 1:
            for uuid in job.devices:
                self._parts[uuid] += job.resources.gpus
        else:
            self._held.update(dict.fromkeys(job.devices, job.id))

    def _running_row(self, job: Job, node: int, kind: int, places: list[Place]) -> tuple[object, ...]:
        wanted, count = job.resources, len(places)
        priority_class = self.policy.class_of(job.priority_class)
        whole = job.placement.exclusive
        started = job.started_at.timestamp() if job.started_at else self._began[job.id]
        return (
            job.id,
            node,
            kind,
            0 if 0 < wanted.gpus < 1 else self._usable(places, kind),
            self.machines.cpus[node] if whole else count * wanted.cpus,
            self.machines.memory[node] if whole else count * wanted.memory_mib,
            started,
            float(job.time_limit_seconds or 0),
            job.time_limit_seconds is not None,
            self._leaves.of((job.project, job.user)),
            priority_class.rank,
            max(count * wanted.gpus, float(self.machines.gpus[node].sum()) if whole else 0.0),
            self._rate(job) * count / job.placement.tasks,
            job.checkpointed_at.timestamp() if job.checkpointed_at else math.nan,
            job.preemptible or priority_class.preemptible,
            started + self.policy.protection_of(job, started),
            job.overtime,
            {None: math.inf, "kill": 0.0}.get(job.stop_requested, job.spec.grace_seconds),
            -1 if job.array_id is None else job.array_id,
        )

    def _usable(self, places: list[Place], kind: int) -> int:
        """How many devices of these come back when the job has ended: not one that is out of order."""
        machines, uuids = self.machines, (uuid for place in places for uuid in place.devices)
        return sum(machines.kind_of.get(uuid) == kind and uuid not in machines.unusable for uuid in uuids)

    def _release(self, job: Job, held: dict[str, JobId], parts: dict[str, float]) -> None:
        for uuid in job.devices:
            if held.get(uuid) == job.id:
                del held[uuid]
            elif uuid in parts:
                parts[uuid] -= job.resources.gpus
                if parts[uuid] < 1e-6:
                    del parts[uuid]

    def _present_usage(self, running: Array, now: float) -> Array:
        """What running jobs have used, and what they may still use: who has just been given much has had their
        turn."""
        so_far = self._ledger.faded(np.minimum(running["started"], now), now)
        limit = np.where(running["has_limit"], running["limit"], self.policy.assumed_limit_seconds)
        ahead = np.maximum(running["started"] + limit - now, 0.0)
        return np.asarray(running["rate"] * (so_far + ahead))

    def _add_to_month(self, user: str, project: str, class_name: str, hours: float) -> None:
        for scope in (*scopes_of(user, project, self.accounts), (class_name, project)):
            self._month[scope] += hours

    def _turn_month(self, now: float) -> None:
        began = month_start(now)
        if began != self._month_began:
            self._month.clear()
            self._month_began = began

    def _shape(self, job: Job) -> Shape:
        return Shape(job.resources, inside(job.placement), self.accounts.project(job.project).data_class)

    def _rate(self, job: Job) -> float:
        kind = self.machines.kind_of.get(job.devices[0]) if job.devices else None
        gpu_type = None if kind is None else self.machines.kinds[kind].type
        if job.placement.exclusive:
            wanted = replace(job.resources, gpus=self._gpus(job) / job.placement.tasks)
            return self.policy.charges.per_second(wanted, job.placement.tasks, gpu_type)
        return self.policy.charges.per_second(job.resources, job.placement.tasks, gpu_type)

    def _gpus(self, job: Job) -> float:
        return gpus_kept(job, self.machines, self.accounts)

    def _renew_pending(self) -> None:
        """Their rows speak of shapes, which know the data class of the project."""
        before, self._pending = self._pending, Columns(PENDING)
        for job in self.jobs.values():
            if job.id in before:
                self._pending.add(job.id, self._pending_row(job))

    def _renew_running(self) -> None:
        """Their rows speak of nodes by number."""
        self._running = Columns(RUNNING)
        self._rows, self._held, self._parts = {}, {}, defaultdict(float)
        self._free = self.machines.empty()
        for job in self.jobs.values():
            if job.state in ACTIVE:
                self._add_running(job)


def month_start(now: float) -> float:
    day = datetime.fromtimestamp(now, UTC)
    return datetime(day.year, day.month, 1, tzinfo=UTC).timestamp()
