"""Metrics of nodes, GPUs and allocations.

These are nearly all series of a large cluster: the labels of each GPU are formatted once, and without a mapping.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from heliostat.metrics import MetricFamily, Samples, escape_label, format_labels
from heliostat.models import Device, Job, JobState, Node, NodeState
from heliostat.services.monitoring import families

_MIB = 2**20
_GPU_VALUES: dict[MetricFamily, Callable[[Device], float | None]] = {
    families.GPU_UTILIZATION: lambda gpu: None if gpu.utilisation is None else gpu.utilisation / 100,
    families.GPU_MEMORY_USED: lambda gpu: None if gpu.utilisation is None else gpu.memory_used_mib * _MIB,
    families.GPU_TEMPERATURE: lambda gpu: gpu.temperature,
    families.GPU_POWER: lambda gpu: gpu.power_watts,
    families.GPU_USABLE: lambda gpu: int(gpu.is_available),
}
"""None: unknown, and no series."""


@dataclass(slots=True)
class _Allocated:
    """To the active jobs of Heliostat."""

    cpus: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by node
    memory_mib: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    gpus: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))  # by uuid
    project_gpus: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    running: list[str] = field(default_factory=list)  # labels of the GPUs of running jobs

    def add(self, job: Job) -> None:
        resources, places = job.resources, job.task_placements
        gpus = resources.gpus
        self.project_gpus[job.project] += gpus * len(places)
        for place in places:
            self.cpus[place.node] += resources.cpus
            self.memory_mib[place.node] += resources.memory_mib
            for uuid in place.devices:
                self.gpus[uuid] += gpus if gpus < 1 else 1
        if job.state is JobState.RUNNING and gpus:
            number, project = f'{{job="{job.id}",uuid="', f'",project="{escape_label(job.project)}"}}'
            uuids = dict.fromkeys(uuid for place in places for uuid in place.devices)  # tasks may share one
            self.running += [number + escape_label(uuid) + project for uuid in uuids]


def collect_cluster(nodes: Sequence[Node], active: Iterable[Job]) -> Iterator[tuple[MetricFamily, Samples]]:
    allocated = _Allocated()
    for job in active:
        allocated.add(job)
    yield from _nodes(nodes, allocated)
    yield from _gpus(nodes, allocated)
    yield families.JOB_GPU_INFO, [(labels, 1) for labels in allocated.running]
    by_project = allocated.project_gpus.items()
    yield families.PROJECT_GPUS, [(format_labels({"project": name}), gpus) for name, gpus in by_project if gpus]


def _nodes(nodes: Sequence[Node], allocated: _Allocated) -> Iterator[tuple[MetricFamily, Samples]]:
    labelled = [(format_labels({"node": node.name}), node) for node in nodes]
    yield families.NODE_UP, [(labels, int(node.state is not NodeState.DOWN)) for labels, node in labelled]
    yield (
        families.NODE_STATE,
        [
            (format_labels({"node": node.name, "state": state}), int(node.state is state))
            for node in nodes
            for state in NodeState
        ],
    )
    yield families.NODE_CPUS, [(labels, node.cpus) for labels, node in labelled]
    yield families.NODE_CPUS_ALLOCATED, [(labels, allocated.cpus[node.name]) for labels, node in labelled]
    yield families.NODE_MEMORY, [(labels, node.memory_mib * _MIB) for labels, node in labelled]
    memory = [(labels, allocated.memory_mib[node.name] * _MIB) for labels, node in labelled]
    yield families.NODE_MEMORY_ALLOCATED, memory


def _gpus(nodes: Sequence[Node], allocated: _Allocated) -> Iterator[tuple[MetricFamily, Samples]]:
    gpus = [
        (f'{{node="{name}",uuid="{escape_label(gpu.uuid)}"', gpu)  # open: a label may follow
        for node in nodes
        for name in (escape_label(node.name),)
        for gpu in node.devices
    ]
    yield families.GPU_INFO, [(f'{label},type="{escape_label(gpu.type)}"}}', 1) for label, gpu in gpus]
    yield families.GPU_ALLOCATED, [(label + "}", allocated.gpus.get(gpu.uuid, 0)) for label, gpu in gpus]
    faults = [(f'{label},kind="{escape_label(gpu.fault)}"}}', 1) for label, gpu in gpus if gpu.fault]
    yield families.GPU_FAULT, faults
    for family, value_of in _GPU_VALUES.items():
        yield family, [(label + "}", value) for label, gpu in gpus if (value := value_of(gpu)) is not None]
