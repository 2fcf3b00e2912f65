"""Simple reference planners, and small workloads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from heliostat.models import ACTIVE_STATES, Job, JobState, Node, TaskPlacement
from heliostat.simulation.cluster import ReplayCluster, parse_cluster
from heliostat.simulation.traces.trace import TraceJob
from heliostat.simulation.workload import Workload, build_workload


@dataclass(frozen=True)
class Starting:
    job: Job
    places: tuple[TaskPlacement, ...]

    @property
    def node(self) -> str:
        return self.places[0].node

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(uuid for place in self.places for uuid in place.devices)


@dataclass(frozen=True)
class Stopping:
    job: Job
    kind: str = "preempt"


@dataclass(frozen=True)
class Decided:
    starts: Sequence[Starting] = ()
    stops: Sequence[Stopping] = ()
    wake_at: datetime | None = None


class InOrder:
    """First in, first out, without backfill. Checks that no device is allocated twice."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._free = {node.name: [device.uuid for device in node.devices] for node in nodes}
        self.waiting: dict[int, Job] = {}
        self.running: dict[int, Job] = {}

    def update_job(self, job: Job, now: datetime) -> None:
        if gone := self.running.pop(job.id, None):
            for place in gone.places:
                self._free[place.node] += place.devices
        self.waiting.pop(job.id, None)
        if job.state is JobState.PENDING:
            self.waiting[job.id] = job
        elif job.state in ACTIVE_STATES:
            self.running[job.id] = job
            for place in job.places:
                assert set(place.devices) <= set(self._free[place.node]), "a device was given twice"
                self._free[place.node] = [uuid for uuid in self._free[place.node] if uuid not in place.devices]

    def make_decision(self, now: datetime) -> Decided:
        return Decided(self.in_order())

    def in_order(self) -> list[Starting]:
        free = {name: list(uuids) for name, uuids in self._free.items()}
        starts: list[Starting] = []
        for job in sorted(self.waiting.values(), key=lambda job: job.id):
            places = _take(job, free)
            if places is None:
                break
            starts.append(Starting(job, places))
        return starts


@dataclass
class Impatient(InOrder):
    """Preempts each running job after so many seconds, a few times, and wakes up for it."""

    nodes: Sequence[Node]
    seconds: float
    times: int = 1
    sent: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.nodes)

    def make_decision(self, now: datetime) -> Decided:
        due = {job.id: (job.started_at or now) + timedelta(seconds=self.seconds) for job in self.running.values()}
        due = {number: at for number, at in due.items() if self.sent.get(number, 0) < self.times}
        stops = [Stopping(self.running[number]) for number, at in due.items() if at <= now]
        for stop in stops:
            self.sent[stop.job.id] = self.sent.get(stop.job.id, 0) + 1
        starts = [] if stops else self.in_order()
        new = [now + timedelta(seconds=self.seconds) for start in starts if start.job.id not in self.sent]
        later = [at for at in due.values() if at > now]
        return Decided(starts, stops, min(new + later, default=None))


def workload_of(nodes: str, *jobs: tuple[float, float, float]) -> tuple[ReplayCluster, Workload]:
    """Jobs as (submitted at, run seconds, GPUs)."""
    cluster = parse_cluster(nodes)
    return cluster, build_workload([TraceJob(at, run, gpus=gpus) for at, run, gpus in sorted(jobs)], cluster)


def _take(job: Job, free: dict[str, list[str]]) -> tuple[TaskPlacement, ...] | None:
    places: list[TaskPlacement] = []
    for _ in range(job.placement.tasks):
        fitting = [name for name, uuids in free.items() if len(uuids) >= job.resources.device_count]
        if not fitting:
            return None
        name = min(fitting, key=lambda name: (len(free[name]), name))
        places.append(TaskPlacement(name, tuple(free[name][: job.resources.device_count])))
        del free[name][: job.resources.device_count]
    return tuple(places)
