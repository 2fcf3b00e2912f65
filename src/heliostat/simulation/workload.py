"""The workload of a replay: jobs of a trace, fitted to the nodes of a cluster."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from heliostat.models import Job, JobSpec, JobState, Node, PlacementRequest, Resources
from heliostat.scheduling.feasibility import count_tasks_on_node, matching_devices
from heliostat.simulation.cluster import ReplayCluster, round_gpus
from heliostat.simulation.traces.trace import TraceJob

_MIN_CPUS, _MIN_MIB = 1, 1  # also the defaults if the trace has no value
_NO_SPEC = JobSpec()


@dataclass(frozen=True, slots=True)
class TaskShape:
    """Resources of each task, and the number of tasks."""

    resources: Resources
    placement: PlacementRequest


@dataclass(frozen=True, slots=True)
class Workload:
    """Jobs to replay, in the order of submission; times are in seconds since the first one."""

    jobs: tuple[Job, ...]
    submitted_seconds: tuple[float, ...]
    run_seconds: tuple[float, ...]
    job_ids: tuple[str, ...]  # in the trace; without one there, their numbers
    departments: Mapping[str, str]  # of each project
    impossible: Mapping[str, int] = field(default_factory=dict)  # why, and how many jobs
    gap_factor: float = 1.0  # on the times between submissions of the trace


def build_workload(trace_jobs: Iterable[TraceJob], cluster: ReplayCluster, *, any_type: bool = False) -> Workload:
    """The jobs that the empty cluster could run; others are counted. `any_type` ignores requested GPU types."""
    return build_workloads(trace_jobs, [cluster], any_type=any_type)[0]


def build_workloads(
    trace_jobs: Iterable[TraceJob], clusters: Sequence[ReplayCluster], *, any_type: bool = False
) -> list[Workload]:
    """The same jobs for each cluster: those that all of the empty clusters could run."""
    caches = [_ShapeCache(cluster, any_type) for cluster in clusters]
    fitting: list[tuple[TraceJob, list[TaskShape]]] = []
    impossible: Counter[str] = Counter()
    for job in trace_jobs:
        shapes = [cache.of(job) for cache in caches]
        if reasons := [shape for shape in shapes if isinstance(shape, str)]:
            impossible[reasons[0]] += 1
        else:
            fitting.append((job, [shape for shape in shapes if not isinstance(shape, str)]))
    return [
        _workload([(job, shapes[index]) for job, shapes in fitting], impossible) for index in range(len(clusters))
    ]


def _workload(fitting: Sequence[tuple[TraceJob, TaskShape]], impossible: Mapping[str, int]) -> Workload:
    departments: dict[str, str] = {}
    for job, _ in fitting:
        departments.setdefault(job.project, job.department)
    began_at = fitting[0][0].submitted_at if fitting else 0.0
    return Workload(
        tuple(_job(number, job, shape) for number, (job, shape) in enumerate(fitting, 1)),
        tuple(round(job.submitted_at - began_at, 6) for job, _ in fitting),
        tuple(job.run_seconds for job, _ in fitting),
        tuple(job.id or str(number) for number, (job, _) in enumerate(fitting, 1)),
        departments,
        dict(impossible),
    )


class _ShapeCache:
    """Task shapes with a cache: most jobs of a trace have one of a few requests."""

    def __init__(self, cluster: ReplayCluster, any_type: bool) -> None:
        self._nodes, self._any_type = cluster.nodes, any_type
        self._cache: dict[tuple[object, ...], TaskShape | str] = {}

    def of(self, job: TraceJob) -> TaskShape | str:
        gpu_type = None if self._any_type else job.gpu_type
        key = (job.gpus, job.cpus, job.memory_mib, gpu_type, job.tasks)
        if key not in self._cache:
            requested = Resources(
                _MIN_CPUS if job.cpus is None else max(job.cpus, _MIN_CPUS),
                _MIN_MIB if job.memory_mib is None else max(job.memory_mib, _MIN_MIB),
                round_gpus(job.gpus),
                gpu_type if job.gpus else None,
            )
            self._cache[key] = fit_tasks_to_nodes(requested, job.tasks, self._nodes)
        return self._cache[key]


def fit_tasks_to_nodes(requested: Resources, tasks: int, nodes: Iterable[Node]) -> TaskShape | str:
    """Tasks that fit on these nodes if they are empty, or why there are none.

    A task larger than the largest node becomes a gang of whole nodes; the last one may not be used in full.
    """
    nodes = list(nodes)
    suitable = [node for node in nodes if _has_type(node, requested)]
    if not suitable:
        return _missing_gpu(requested, nodes)
    requested, tasks = _split(requested, tasks, suitable)
    task_slots = sum(count_tasks_on_node(node, requested) for node in suitable)
    if task_slots == 0:
        return _too_small(requested, suitable)
    if task_slots < tasks:
        return "larger than the cluster"
    return TaskShape(requested, PlacementRequest(tasks))


def _missing_gpu(requested: Resources, nodes: Sequence[Node]) -> str:
    if requested.gpu_type:
        return f"no node has a GPU of type {requested.gpu_type}"
    return "no node has a GPU" + (" that is not a MIG slice" if any(node.devices for node in nodes) else "")


def _too_small(requested: Resources, suitable: Sequence[Node]) -> str:
    """Why none of these nodes, which have such GPUs, could run a task."""
    whole = replace(requested, gpus=math.ceil(requested.gpus))
    if any(count_tasks_on_node(node, whole) for node in suitable):
        return "no node lets jobs share such a GPU"
    return "no node has enough cpus or memory"


def _split(requested: Resources, tasks: int, suitable: list[Node]) -> tuple[Resources, int]:
    """Split a task that is too large for any node into tasks of whole nodes."""
    if requested.gpus:
        largest = max(_count_devices(node, requested) for node in suitable)
        size: float = requested.gpus
    else:
        largest, size = max(node.cpus for node in suitable), requested.cpus
    if size <= largest:
        return requested, tasks
    task_count = math.ceil(size * tasks / largest)
    cpus, memory_mib = (
        math.ceil(requested.cpus * tasks / task_count),
        math.ceil(requested.memory_mib * tasks / task_count),
    )
    if requested.gpus:
        return Resources(cpus, memory_mib, largest, requested.gpu_type), task_count
    return Resources(largest, memory_mib), task_count


def _has_type(node: Node, requested: Resources) -> bool:
    return not requested.gpus or _count_devices(node, requested) > 0


def _count_devices(node: Node, requested: Resources) -> int:
    return len(matching_devices(node, requested.gpu_type))


def _job(number: int, job: TraceJob, shape: TaskShape) -> Job:
    limit = job.limit_seconds
    return Job(
        id=number,
        kind="batch",
        name=job.name or f"job-{number}",
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
