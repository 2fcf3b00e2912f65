"""Jobs of a trace as jobs of a cluster: which nodes could hold them, and as how many tasks."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from heliostat.models import Job, JobSpec, JobState, Node, PlacementRequest, Resources
from heliostat.simulation.cluster import ReplayCluster, round_gpus
from heliostat.simulation.traces.trace import TraceJob

_LEAST_CPUS, _LEAST_MIB = 1, 1  # of a job whose trace does not say
_NO_SPEC = JobSpec()


@dataclass(frozen=True, slots=True)
class TaskShape:
    """What each task holds, and how many there are."""

    resources: Resources
    placement: PlacementRequest


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs ready to be replayed, in the order of their submission; times count from the first of them."""

    jobs: tuple[Job, ...]
    submitted_seconds: tuple[float, ...]
    run_seconds: tuple[float, ...]
    departments: Mapping[str, str]  # of each project
    impossible: Mapping[str, int] = field(default_factory=dict)  # why, and how many jobs


def build_workload(traced: Iterable[TraceJob], cluster: ReplayCluster, *, any_type: bool = False) -> Workload:
    """Those that the empty cluster could run; the others are counted. `any_type` forgets what type they wanted."""
    shapes = _Shapes(cluster, any_type)
    fitting: list[tuple[TraceJob, TaskShape]] = []
    impossible: Counter[str] = Counter()
    departments: dict[str, str] = {}
    for job in traced:
        found = shapes.of(job)
        if isinstance(found, str):
            impossible[found] += 1
        else:
            fitting.append((job, found))
            departments.setdefault(job.project, job.department)
    began_at = fitting[0][0].submitted_at if fitting else 0.0
    return Workload(
        tuple(_job(number, job, shape) for number, (job, shape) in enumerate(fitting, 1)),
        tuple(round(job.submitted_at - began_at, 6) for job, _ in fitting),
        tuple(job.run_seconds for job, _ in fitting),
        departments,
        dict(impossible),
    )


class _Shapes:
    """Remembers its answers: most jobs of a trace ask for one of a few things."""

    def __init__(self, cluster: ReplayCluster, any_type: bool) -> None:
        self._nodes, self._any_type = cluster.nodes, any_type
        self._known: dict[tuple[object, ...], TaskShape | str] = {}

    def of(self, job: TraceJob) -> TaskShape | str:
        gpu_type = None if self._any_type else job.gpu_type
        key = (job.gpus, job.cpus, job.memory_mib, gpu_type, job.tasks)
        if key not in self._known:
            wanted = Resources(
                _LEAST_CPUS if job.cpus is None else max(job.cpus, _LEAST_CPUS),
                _LEAST_MIB if job.memory_mib is None else max(job.memory_mib, _LEAST_MIB),
                round_gpus(job.gpus),
                gpu_type if job.gpus else None,
            )
            self._known[key] = fit_tasks_to_nodes(wanted, job.tasks, self._nodes)
        return self._known[key]


def fit_tasks_to_nodes(wanted: Resources, tasks: int, nodes: Iterable[Node]) -> TaskShape | str:
    """The tasks that fit these nodes when they are empty, or why there are none.

    A task larger than the largest node becomes a gang of whole nodes, the last of them perhaps not used in full.
    """
    able = [node for node in nodes if _has_type(node, wanted)]
    if not able:
        return f"no node has a GPU of type {wanted.gpu_type}" if wanted.gpu_type else "no node has a GPU"
    wanted, tasks = _split(wanted, tasks, able)
    room = sum(_times(wanted, node) for node in able)
    if room == 0:
        return "no node has so many cpus or so much memory"
    if room < tasks:
        return "larger than the cluster"
    return TaskShape(wanted, PlacementRequest(tasks))


def _split(wanted: Resources, tasks: int, able: list[Node]) -> tuple[Resources, int]:
    """Whole nodes for what no single one could hold."""
    if wanted.gpus:
        largest, size = max(len(node.devices) for node in able), wanted.gpus
    else:
        largest, size = max(node.cpus for node in able), wanted.cpus
    if size <= largest:
        return wanted, tasks
    parts = math.ceil(size * tasks / largest)
    cpus, memory_mib = math.ceil(wanted.cpus * tasks / parts), math.ceil(wanted.memory_mib * tasks / parts)
    if wanted.gpus:
        return Resources(cpus, memory_mib, largest, wanted.gpu_type), parts
    return Resources(largest, memory_mib), parts


def _has_type(node: Node, wanted: Resources) -> bool:
    if not wanted.gpus or wanted.gpu_type is None:
        return not wanted.gpus or bool(node.devices)
    return any(device.type.lower() == wanted.gpu_type.lower() for device in node.devices)


def _times(wanted: Resources, node: Node) -> int:
    """How often that fits into the empty node."""
    by_rest = min(node.cpus // wanted.cpus, node.memory_mib // wanted.memory_mib)
    if not wanted.gpus:
        return by_rest
    each = len(node.devices) * int(1 / wanted.gpus) if wanted.gpus < 1 else len(node.devices) // int(wanted.gpus)
    return min(by_rest, each)


def _job(number: int, job: TraceJob, shape: TaskShape) -> Job:
    limit = job.limit_seconds
    return Job(
        id=number,
        kind="batch",
        name=f"job-{number}",
        state=JobState.PENDING,
        user=job.user,
        unix_user=job.user,
        project=job.project,
        resources=shape.resources,
        spec=_NO_SPEC,
        submitted_at=_EPOCH + timedelta(seconds=job.submitted_at),
        time_limit_seconds=None if limit is None else math.ceil(limit),
        placement=shape.placement,
        priority_class=job.priority_class,
        preemptible=job.preemptible,
    )


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
