"""Builders of jobs, nodes and queue states for tests."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.models import Device, Job, JobSpec, JobState, Node, Reservation, Resources
from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Plan

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SMALL = Resources(1, 100)
FIFO_BACKFILL = SchedulingPolicy(order="fifo")  # type: ignore[arg-type]


def a_job(number: int, resources: Resources = SMALL, **fields: object) -> Job:
    job = Job(
        id=number,
        kind="batch",
        name="job",
        state=JobState.PENDING,
        user="ann",
        unix_user="ann",
        project="default",
        resources=resources,
        spec=JobSpec(),
        submitted_at=NOW,
    )
    return replace(job, **fields)  # type: ignore[arg-type]


def a_running_job(number: int, node: str, resources: Resources = SMALL, **fields: object) -> Job:
    return a_job(number, resources, state=JobState.RUNNING, started_at=NOW, node=node, attempt=1, **fields)


def a_node(name: str = "a", cpus: int = 8, memory_mib: int = 1000, gpus: int = 0, **fields: object) -> Node:
    devices = tuple(Device(f"{name}-{index}", index, "A100", "NVIDIA A100", 80000) for index in range(gpus))
    return replace(Node(name, cpus, memory_mib, devices), **fields)  # type: ignore[arg-type]


def a_queue_state(
    nodes: tuple[Node, ...],
    jobs: Iterable[Job],
    policy: SchedulingPolicy | None = None,
    accounts: ShareAccounts | None = None,
    reservations: tuple[Reservation, ...] = (),
) -> QueueState:
    board = QueueState(policy or SchedulingPolicy())
    board.set_nodes(nodes)
    board.set_accounts(accounts or ShareAccounts())
    board.set_reservations(reservations)
    for job in jobs:
        board.update_job(job, NOW)
    return board


def a_plan(board: QueueState, now: datetime = NOW) -> Plan:
    return plan(board.snapshot(now), board.policy, now)


def started(made: Plan) -> dict[int, tuple[str, ...]]:
    """Which jobs start, and on which nodes."""
    return {start.job.id: tuple(place.node for place in start.places) for start in made.starts}
