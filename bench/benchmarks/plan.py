"""How long one plan takes, on clusters and queues that grow: `plan()` alone, in time of one core.

Beside it stands what a queue does without such a planner: the pending jobs sorted by their wait, each put on the
first node that has room, in plain Python over the same input.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from random import Random

from bench.measurements import OUR_SYSTEM, Measurement
from bench.settings import Settings
from heliostat.models import (
    Device,
    Job,
    JobSpec,
    JobState,
    Node,
    PlacementRequest,
    Project,
    Reservation,
    Resources,
)
from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Plan, PlannedStart

BENCHMARK = "plan"
BASELINE = "sorted first fit"
NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GPU_TYPES = (("A100", 80_000), ("V100", 16_000), ("RTX-3090", 24_000))
JOB_SHAPES = ((1, 1), (1, 1), (1, 1), (2, 1), (4, 1), (8, 1), (0.5, 1), (0, 1), (1, 4), (2, 8))  # GPUs, tasks
_SPEC = JobSpec()


@dataclass(frozen=True)
class ClusterSize:
    nodes: int
    gpus: int
    pending: int

    @property
    def description(self) -> str:
        return f"{self.nodes:,} nodes, {self.gpus:,} GPUs, {self.pending:,} pending"


CLUSTER_SIZES = (
    ClusterSize(40, 100, 1_000),
    ClusterSize(400, 1_000, 10_000),
    ClusterSize(1_200, 3_000, 30_000),
    ClusterSize(4_000, 10_000, 100_000),
)


def measure(settings: Settings) -> Iterator[Measurement]:
    for kind, world in {"nearly full": full_cluster_state, "empty": empty_cluster_state}.items():
        before: float | None = None
        for size in CLUSTER_SIZES:
            board = world(size, Random(size.nodes))
            milliseconds, made = best_plan_time_ms(board, settings)
            growth = f", {milliseconds / before:.1f}x the size before" if before else ""
            measure_of = f"{kind}: {size.description}"
            note = f"{len(made.starts):,} start, {len(made.stops)} stop{growth}"
            yield Measurement(BENCHMARK, measure_of, OUR_SYSTEM, milliseconds, "ms", "lower", note)
            peer, said = _first_fit_ms(board)
            yield Measurement(BENCHMARK, measure_of, BASELINE, peer, "ms", "lower", said)
            before = milliseconds
    yield _ordinary_event(settings)
    for pending in (1_000, 4_000):
        milliseconds, made = best_plan_time_ms(different_shapes_state(pending, Random(1)), settings)
        measure_of = f"12 nodes, 96 GPUs, 20 reservations, {pending:,} pending of different shapes"
        note = f"{len(made.starts):,} start"
        yield Measurement(BENCHMARK, measure_of, OUR_SYSTEM, milliseconds, "ms", "lower", note)


def best_plan_time_ms(board: QueueState, settings: Settings) -> tuple[float, Plan]:
    """The quickest of some tries, each on a snapshot that nobody has looked at."""
    times = []
    for _ in range(max(3, settings.repeat)):
        fresh = board.snapshot(NOW)
        began = time.thread_time()
        made = plan(fresh, board.policy, NOW)
        times.append((time.thread_time() - began) * 1000)
    return min(times), made


def _ordinary_event(settings: Settings) -> Measurement:
    """One job has ended: note that, take a snapshot, plan."""
    board = full_cluster_state(CLUSTER_SIZES[0], Random(1))
    running = [job for job in board.jobs.values() if job.state is JobState.RUNNING]
    times = []
    for job in running[: max(20, settings.tries)]:
        began = time.thread_time()
        board.update_job(replace(job, state=JobState.COMPLETED, ended_at=NOW), NOW)
        made = plan(board.snapshot(NOW), board.policy, NOW)
        times.append((time.thread_time() - began) * 1000)
        for start in made.starts:
            board.update_job(as_running(start), NOW)
    times.sort()
    note = f"median; slowest {times[-1]:.1f} ms"
    measure_of = f"one job ended: {CLUSTER_SIZES[0].description}"
    return Measurement(BENCHMARK, measure_of, OUR_SYSTEM, times[len(times) // 2], "ms", "lower", note)


def empty_cluster_state(size: ClusterSize, random: Random) -> QueueState:
    board = QueueState(SchedulingPolicy())
    board.set_nodes(tuple(_nodes(size, random)))
    projects = {f"p{number}": Project(f"p{number}", f"d{number % 8}") for number in range(50)}
    board.set_accounts(ShareAccounts({}, projects))
    for number in range(1, size.pending + 1):
        board.update_job(_job(number, random), NOW)
    return board


def full_cluster_state(size: ClusterSize, random: Random) -> QueueState:
    """What an empty cluster of this size would start runs already; as many wait as before."""
    board = empty_cluster_state(size, random)
    made = plan(board.snapshot(NOW), board.policy, NOW)
    for start in made.starts:
        ago = timedelta(minutes=random.randrange(60))
        board.update_job(replace(as_running(start), started_at=NOW - ago), NOW)
    for number in range(size.pending + 1, size.pending + 1 + len(made.starts)):
        board.update_job(_job(number, random), NOW)
    for start in random.sample(made.starts, len(made.starts) // 50):
        board.update_job(replace(start.job, state=JobState.COMPLETED, ended_at=NOW), NOW)
    return board


def different_shapes_state(pending: int, random: Random) -> QueueState:
    """No two jobs have the same shape, and each is too long to end before the reservations of most GPUs."""
    board = empty_cluster_state(ClusterSize(12, 96, 0), random)
    board.set_nodes(tuple(_node(number, 8) for number in range(12)))
    board.set_reservations(tuple(_reservation(hour, board.node_table.nodes, random) for hour in range(1, 21)))
    for number in range(1, pending + 1):
        job = _job(number, random)
        resources = replace(job.resources, memory_mib=1_000 + number)
        board.update_job(replace(job, resources=resources, time_limit_seconds=86_400), NOW)
    return board


def as_running(start: PlannedStart) -> Job:
    several = start.places if len(start.places) > 1 else ()
    return replace(
        start.job,
        state=JobState.RUNNING,
        started_at=NOW,
        attempt=1,
        node=start.node,
        devices=start.devices,
        places=several,
    )


def _nodes(size: ClusterSize, random: Random) -> Iterator[Node]:
    """GPUs in nodes of 8, 4 and 2, and nodes without."""
    left = size.gpus
    for number in range(size.nodes):
        count = min(left, random.choice((8, 4, 2, 2, 2)))
        left -= count
        yield _node(number, count)


def _node(number: int, gpus: int) -> Node:
    kind, memory = GPU_TYPES[number % len(GPU_TYPES)]
    name = f"n{number:04}"
    devices = tuple(Device(f"{name}-{index}", index, kind, kind, memory) for index in range(gpus))
    return Node(name, 64, 512_000, devices, splits_devices=number % 10 == 0)


def _reservation(hour: int, nodes: Sequence[Node], random: Random) -> Reservation:
    """Six GPUs on each of ten nodes, for one hour."""
    names = tuple(node.name for node in random.sample(nodes, 10))
    begin = NOW + timedelta(hours=hour)
    return Reservation(f"r{hour}", names, begin, begin + timedelta(hours=1), project="course", gpus_per_node=6)


def _job(number: int, random: Random) -> Job:
    gpus, tasks = random.choice(JOB_SHAPES)
    user = random.randrange(400)
    return Job(
        id=number,
        kind="batch",
        name="job",
        state=JobState.PENDING,
        user=f"u{user}",
        unix_user="nobody",
        project=f"p{user % 50}",
        resources=Resources(random.choice((1, 2, 4, 8)), random.choice((4_000, 16_000, 32_000)), gpus),
        spec=_SPEC,
        submitted_at=NOW - timedelta(minutes=random.randrange(3_000)),
        time_limit_seconds=random.choice((600, 3_600, 14_400, 86_400)),
        placement=PlacementRequest(tasks=tasks),
        priority_class=random.choice(("normal",) * 8 + ("interactive", "scavenger")),
    )


def _first_fit_ms(board: QueueState) -> tuple[float, str]:
    """Once, and at most ten seconds: then as if the rest took as long for each job. And a note."""
    waiting = [job for job in board.jobs.values() if job.state is JobState.PENDING]
    free = [[node.cpus, node.memory_mib, float(len(node.devices))] for node in board.node_table.nodes]
    for job in board.jobs.values():
        if job.state is JobState.RUNNING:
            for place in job.task_placements:
                _take(free[board.node_table.index_by_name[place.node]], job.resources)
    began = time.thread_time()
    waiting.sort(key=lambda job: (job.submitted_at, job.id))
    for done, job in enumerate(waiting, 1):
        _first_fit(job, free)
        if time.thread_time() - began > 10:
            seconds = (time.thread_time() - began) * len(waiting) / done
            return seconds * 1000, "no shares, no backfill; reckoned from its first 10 s"
    return (time.thread_time() - began) * 1000, "no shares, no backfill"


def _first_fit(job: Job, free: list[list[float]]) -> None:
    wanted, found = job.resources, list[list[float]]()
    for node in free:
        if len(found) < job.placement.tasks and _has(node, wanted):
            _take(node, wanted)
            found.append(node)
        elif len(found) == job.placement.tasks:
            return
    if len(found) < job.placement.tasks:
        for node in found:
            node[0], node[1], node[2] = node[0] + wanted.cpus, node[1] + wanted.memory_mib, node[2] + wanted.gpus


def _has(node: list[float], wanted: Resources) -> bool:
    return node[0] >= wanted.cpus and node[1] >= wanted.memory_mib and node[2] >= wanted.gpus


def _take(node: list[float], wanted: Resources) -> None:
    node[0] -= wanted.cpus
    node[1] -= wanted.memory_mib
    node[2] -= wanted.gpus
