"""Cluster overview: nodes, devices and their jobs, demand by project, numbers of free and used GPUs."""

import math
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from weakref import WeakKeyDictionary

from heliostat.models import (
    ACTIVE_STATES,
    Caller,
    Device,
    Job,
    JobId,
    JobState,
    Node,
    NodeState,
    Reservation,
    User,
    count_cards,
)
from heliostat.models.samples import DEVICE_COLUMNS, USAGE_COLUMNS, node_subject
from heliostat.services.cluster.foreign_jobs import (
    ForeignJobOnNode,
    devices_in_foreign_use,
    foreign_jobs_by_node,
    mark_devices_in_foreign_use,
)
from heliostat.services.cluster.nodes import get_node
from heliostat.services.cluster.reservations import list_reservations
from heliostat.services.context import Context
from heliostat.services.efficiency_facts import IDLE_PERCENT
from heliostat.services.permissions import may_inspect
from heliostat.store import jobs as stored
from heliostat.store.sample_chunks import TimeGrid, resample_chunks
from heliostat.store.samples import SampleStore
from heliostat.store.usage import count_unfinished_by_project

_MAX_ACTIVE_JOBS = 100_000
_SOON = timedelta(days=7)

UTILISATION_WINDOW = timedelta(minutes=10)
_CACHE_SECONDS = 20.0

DeviceUtilisations = Sequence[float | None]


class DeviceCondition(StrEnum):
    """What a device is used for."""

    FREE = "free"
    BUSY = "busy"
    IDLE = "idle"  # allocated to a job, and hardly used recently
    DRAINED = "drained"
    FAULTY = "faulty"
    FOREIGN = "foreign"  # used by a process or job outside the queue


@dataclass(frozen=True, slots=True)
class JobOnNode:
    """A job on a node, with the fields that the caller may see."""

    job_id: JobId
    user: str
    project: str
    name: str | None  # None: hidden from this caller
    state: JobState
    gpus: float  # on this node
    cpus: int
    memory_mib: int
    started_at: datetime | None
    ends_at: datetime | None  # when it reaches its time limit; None: no limit, or not started
    inspectable: bool


@dataclass(frozen=True, slots=True)
class DeviceStatus:
    device: Device
    condition: DeviceCondition
    jobs: tuple[JobOnNode, ...]


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """The next occurrence of a reservation that is active or begins within a week."""

    name: str
    project: str | None  # None: maintenance
    gpus: int | None  # None: the whole node
    reason: str
    starts_at: datetime
    ends_at: datetime
    is_active: bool


@dataclass(frozen=True, slots=True)
class NodeStatus:
    node: Node
    devices: tuple[DeviceStatus, ...]
    jobs: tuple[JobOnNode, ...]
    reservations: tuple[NodeReservation, ...]
    foreign_jobs: tuple[ForeignJobOnNode, ...] = ()

    @property
    def allocated_gpus(self) -> float:
        return sum(job.gpus for job in self.jobs) + sum(foreign.gpus for foreign in self.foreign_jobs)

    @property
    def allocated_cpus(self) -> int:
        return sum(job.cpus for job in self.jobs) + sum(foreign.cpus for foreign in self.foreign_jobs)

    @property
    def allocated_memory_mib(self) -> int:
        return sum(job.memory_mib for job in self.jobs) + sum(foreign.memory_mib for foreign in self.foreign_jobs)


@dataclass(frozen=True, slots=True)
class ProjectDemand:
    """GPUs that the unfinished jobs of a project use and wait for."""

    project: str
    running_gpus: float
    pending_gpus: float
    running_jobs: int
    pending_jobs: int


@dataclass(frozen=True, slots=True)
class ClusterOverview:
    """Numbers of GPUs, cpus and jobs in the cluster. MIG slices count as their part of a GPU."""

    gpus: float
    free_gpus: float
    cpus: int
    pending_jobs: int
    running_jobs: int


def list_node_statuses(context: Context, caller: Caller) -> tuple[NodeStatus, ...]:
    """All nodes, for all users."""
    return _node_statuses(context, caller, context.node_inventory.fresh_nodes())


def get_node_status(context: Context, caller: Caller, name: str) -> NodeStatus:
    (status,) = _node_statuses(context, caller, [get_node(context, name)])
    return status


def demand_by_project(context: Context) -> tuple[ProjectDemand, ...]:
    """Projects that use or request most GPUs first; for all users, as the list of jobs is."""
    sums_by_project: dict[str, dict[bool, tuple[int, float]]] = defaultdict(dict)
    with context.store.read() as conn:
        rows = count_unfinished_by_project(conn)
    for project, state, jobs, gpus in rows:
        if state is not JobState.HELD:
            before = sums_by_project[project].get(state in ACTIVE_STATES, (0, 0.0))
            sums_by_project[project][state in ACTIVE_STATES] = (before[0] + jobs, before[1] + gpus)
    return tuple(sorted((_demand(name, sums) for name, sums in sums_by_project.items()), key=_by_size))


def get_cluster_overview(context: Context) -> ClusterOverview:
    """From data in memory: cheap enough for every page."""
    nodes = [node for node in context.node_inventory.nodes() if node.state is not NodeState.DOWN]
    active, pending = context.controller.active_jobs_and_pending_count()
    allocated = {uuid for job in active for place in job.task_placements for uuid in place.devices}
    allocated |= devices_in_foreign_use(context)
    open_nodes = (node for node in nodes if node.state is NodeState.UP)
    free = (
        device
        for node in open_nodes
        for device in node.devices
        if device.is_available and device.uuid not in allocated
    )
    return ClusterOverview(
        gpus=count_cards(device for node in nodes for device in node.devices),
        free_gpus=count_cards(free),
        cpus=sum(node.cpus for node in nodes),
        pending_jobs=pending,
        running_jobs=len(active),
    )


def _demand(project: str, sums: Mapping[bool, tuple[int, float]]) -> ProjectDemand:
    (running_jobs, running_gpus), (pending_jobs, pending_gpus) = (sums.get(at, (0, 0.0)) for at in (True, False))
    return ProjectDemand(project, running_gpus, pending_gpus, running_jobs, pending_jobs)


def _by_size(demand: ProjectDemand) -> tuple[float, int, str]:
    gpus, jobs = demand.running_gpus + demand.pending_gpus, demand.running_jobs + demand.pending_jobs
    return -gpus, -jobs, demand.project


def _node_statuses(context: Context, caller: Caller, nodes: Sequence[Node]) -> tuple[NodeStatus, ...]:
    now = context.now()
    by_node = _active_by_node(context, {node.name for node in nodes})
    used = recent_utilisation(context, [node.name for node in nodes if by_node.get(node.name)])
    reserved = list_reservations(context, caller)
    view = _View(caller.user, now, used, foreign_jobs_by_node(context, caller))
    return tuple(
        view.node(node, by_node.get(node.name, ()), _node_reservations(node.name, reserved, now)) for node in nodes
    )


def _active_by_node(context: Context, names: set[str]) -> dict[str, list[Job]]:
    with context.store.read() as conn:
        active = stored.list_jobs(conn, stored.JobFilter(states=ACTIVE_STATES), limit=_MAX_ACTIVE_JOBS)
    by_node: dict[str, list[Job]] = defaultdict(list)
    for job in active:
        for name in dict.fromkeys(place.node for place in job.task_placements):
            if name in names:
                by_node[name].append(job)
    return by_node


def _node_reservations(
    node: str, reservations: Iterable[Reservation], now: datetime
) -> tuple[NodeReservation, ...]:
    upcoming = []
    for each in reservations:
        times = next(each.occurrences(now), None) if node in each.nodes else None
        if times is not None and times[0] <= now + _SOON:
            active = times[0] <= now
            upcoming.append(
                NodeReservation(each.name, each.project, each.gpus_per_node, each.reason, *times, active)
            )
    return tuple(upcoming)


@dataclass(frozen=True, slots=True)
class _View:
    user: User
    now: datetime
    used: Mapping[str, Sequence[float | None]]  # by node: the recent mean of each device
    foreign_jobs: Mapping[str, Sequence[ForeignJobOnNode]]

    def node(self, node: Node, jobs: Sequence[Job], reservations: tuple[NodeReservation, ...]) -> NodeStatus:
        foreign_jobs = tuple(self.foreign_jobs.get(node.name, ()))
        node = mark_devices_in_foreign_use(node, foreign_jobs)
        jobs_here = {job.id: self._job_on_node(job, node.name) for job in jobs}
        holders: dict[str, list[JobOnNode]] = defaultdict(list)
        for job in jobs:
            places = (place for place in job.task_placements if place.node == node.name)
            for uuid in dict.fromkeys(uuid for place in places for uuid in place.devices):
                holders[uuid].append(jobs_here[job.id])
        devices = tuple(self._device(node, at, holders[device.uuid]) for at, device in enumerate(node.devices))
        return NodeStatus(node, devices, tuple(jobs_here.values()), reservations, foreign_jobs)

    def _job_on_node(self, job: Job, node: str) -> JobOnNode:
        tasks = sum(place.node == node for place in job.task_placements)
        limit = None if job.time_limit_seconds is None else timedelta(seconds=job.time_limit_seconds)
        inspectable = may_inspect(self.user, job)
        return JobOnNode(
            job_id=job.id,
            user=job.user,
            project=job.project,
            name=job.name if inspectable else None,
            state=job.state,
            gpus=job.resources.gpus * tasks,
            cpus=job.resources.cpus * tasks,
            memory_mib=job.resources.memory_mib * tasks,
            started_at=job.started_at,
            ends_at=job.started_at + limit if job.started_at and limit else None,
            inspectable=inspectable,
        )

    def _device(self, node: Node, at: int, jobs_here: Sequence[JobOnNode]) -> DeviceStatus:
        device = node.devices[at]
        return DeviceStatus(device, self._condition(node, at, jobs_here), tuple(jobs_here))

    def _condition(self, node: Node, at: int, jobs_here: Sequence[JobOnNode]) -> DeviceCondition:
        device = node.devices[at]
        if device.problem is not None or node.state is NodeState.DOWN:
            return DeviceCondition.FAULTY
        if device.used_outside is not None:
            return DeviceCondition.FOREIGN
        if jobs_here:
            return DeviceCondition.IDLE if self._is_idle(node.name, at, jobs_here) else DeviceCondition.BUSY
        return DeviceCondition.DRAINED if node.state is NodeState.DRAINED else DeviceCondition.FREE

    def _is_idle(self, node: str, at: int, jobs_here: Sequence[JobOnNode]) -> bool:
        """False for a job that started recently, and where no samples exist."""
        starts = [job.started_at for job in jobs_here if job.started_at is not None]
        if not starts or self.now - max(starts) < UTILISATION_WINDOW:
            return False
        known = self.used.get(node, ())
        mean = known[at] if at < len(known) else None
        return mean is not None and mean < IDLE_PERCENT


def recent_utilisation(context: Context, nodes: Collection[str]) -> Mapping[str, DeviceUtilisations]:
    """By node: the mean utilisation in percent of each of its devices; None: unknown."""
    cache = _cache_of(context.samples)
    return {name: cache.get(context, name) for name in nodes}


class _UtilisationCache:
    def __init__(self) -> None:
        self._known: dict[str, tuple[float, DeviceUtilisations]] = {}

    def get(self, context: Context, node: str) -> DeviceUtilisations:
        clock = time.monotonic()
        read_at, means = self._known.get(node, (-math.inf, ()))
        if clock - read_at > _CACHE_SECONDS:
            means = _read(context, node)
            self._known[node] = (clock, means)
        return means


_lock = threading.Lock()
_caches: WeakKeyDictionary[SampleStore, _UtilisationCache] = WeakKeyDictionary()


def _cache_of(samples: SampleStore) -> _UtilisationCache:
    with _lock:
        return _caches.setdefault(samples, _UtilisationCache())


def _read(context: Context, node: str) -> DeviceUtilisations:
    end = int(context.now().timestamp()) + 1
    seconds = int(UTILISATION_WINDOW.total_seconds())
    chunks = context.samples.read(node_subject(node), end - seconds, end)
    if not chunks:
        return ()
    row = resample_chunks(chunks, TimeGrid(end - seconds, seconds, 1)).mean[0].tolist()
    first, step = len(USAGE_COLUMNS), len(DEVICE_COLUMNS)
    return tuple(None if math.isnan(value) else value for value in row[first::step])
