"""Jobs and nodes for tests."""

from dataclasses import replace
from datetime import UTC, datetime

from heliostat.models import Device, Job, JobSpec, JobState, Node, Resources

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
SMALL = Resources(1, 100)


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


def a_node(name: str = "a", cpus: int = 8, memory_mib: int = 1000, gpus: int = 0, **fields: object) -> Node:
    devices = tuple(Device(f"{name}-{index}", index, "A100", "NVIDIA A100", 80000) for index in range(gpus))
    return replace(Node(name, cpus, memory_mib, devices), **fields)  # type: ignore[arg-type]
