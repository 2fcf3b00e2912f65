"""State of the Slurm cluster (nodes, partitions, reservations), and checks of requests that it could never run."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import MAX_ARRAY_SIZE
from heliostat.engines.slurm.batch_script import SubmissionContext
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.command_output import SlurmNode, SlurmPartition, SlurmReservation
from heliostat.engines.slurm.mapping import (
    NameMapping,
    PartitionChoice,
    UnsupportedRequest,
    choose_partition,
    make_node,
    require_safe_word,
)
from heliostat.errors import Invalid
from heliostat.models import Job, Node, Resources, TaskLayout
from heliostat.models.amounts import format_count, format_size

_MAX_AGE_SECONDS = 5.0


@dataclass(frozen=True)
class ClusterSnapshot:
    """Slurm's partitions, nodes and reservations at one moment."""

    partitions: Mapping[str, SlurmPartition] = field(default_factory=dict)
    nodes: tuple[SlurmNode, ...] = ()
    reservations: tuple[SlurmReservation, ...] | None = None  # None: unknown

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that do not name one."""
        return next((name for name, partition in self.partitions.items() if partition.is_default), None)

    @property
    def gpu_types(self) -> set[str]:
        return {kind for node in self.nodes for kind, _ in node.gpus}

    @cached_property
    def features_by_node(self) -> dict[str, frozenset[str]]:
        return {node.name: frozenset(node.features) for node in self.nodes}

    @property
    def max_run_seconds(self) -> dict[str, int]:
        """Time limits by partition, where there is one; "" stands for the default partition."""
        limits = {
            name: partition.max_run_seconds
            for name, partition in self.partitions.items()
            if partition.max_run_seconds is not None
        }
        return limits | ({"": limits[self.default_partition]} if self.default_partition in limits else {})


class ClusterState:
    """The newest snapshot. Refreshed by the thread that holds the Slurm lock; any thread may read it."""

    def __init__(self, client: SlurmClient, site: SubmissionContext) -> None:
        self._client = client
        self.submission_context = site  # with Slurm's names and limits
        self.nodes: list[Node] = []
        self.snapshot = ClusterSnapshot()
        self.max_array_size = MAX_ARRAY_SIZE
        self.on_change: Callable[[], None] = lambda: None
        self._stale_at = 0.0

    @property
    def device_types(self) -> dict[str, str]:
        """GPU types by uuid."""
        return {device.uuid: device.type for node in self.nodes for device in node.devices}

    @property
    def reservation_names(self) -> list[str]:
        return [reservation.name for reservation in self.snapshot.reservations or ()]

    def refresh_if_stale(self) -> None:
        if time.monotonic() >= self._stale_at:
            self.refresh()

    def refresh(self) -> None:
        snapshot = self.snapshot = read_cluster_snapshot(self._client)
        self.max_array_size = self._client.max_array_size() or MAX_ARRAY_SIZE
        names = self.submission_context.name_mapping.with_observed_gpu_types(snapshot.gpu_types)
        self.submission_context = replace(
            self.submission_context, name_mapping=names, max_run_seconds=snapshot.max_run_seconds
        )
        nodes = apply_name_mapping([make_node(node) for node in snapshot.nodes], snapshot, names)
        self._stale_at = time.monotonic() + _MAX_AGE_SECONDS
        if nodes != self.nodes:
            self.nodes = nodes
            self.on_change()


def read_cluster_snapshot(client: SlurmClient) -> ClusterSnapshot:
    return ClusterSnapshot(client.partitions(), tuple(client.nodes()), tuple(client.reservations()))


def apply_name_mapping(nodes: Sequence[Node], snapshot: ClusterSnapshot, names: NameMapping) -> list[Node]:
    """The nodes with Heliostat's labels, data classes and GPU types for what they have in Slurm."""
    types = {theirs: ours for ours, theirs in names.configured_gpu_types.items()}
    return [
        replace(
            node,
            devices=tuple(replace(device, type=types.get(device.type, device.type)) for device in node.devices),
            labels={**node.labels, **_labels(node.name, snapshot, names)},
            min_data_class=min(classes, default=0),
            data_class=max(classes, default=0),
        )
        for node in nodes
        for classes in [_classes(node.name, snapshot, names)]
    ]


def is_node_eligible(node: str, choice: PartitionChoice, snapshot: ClusterSnapshot) -> bool:
    """Whether the node is in one of the partitions and has all features."""
    if not snapshot.features_by_node.get(node, frozenset()) >= set(choice.features):
        return False
    if choice.partition is None:
        return True
    names = choice.partition.split(",")
    return any(node in snapshot.partitions[name].nodes for name in names if name in snapshot.partitions)


def _labels(node: str, snapshot: ClusterSnapshot, names: NameMapping) -> dict[str, str]:
    matching = (label for label, choice in names.labels.items() if is_node_eligible(node, choice, snapshot))
    return {name: value for name, _, value in (label.partition("=") for label in matching)}


def _classes(node: str, snapshot: ClusterSnapshot, names: NameMapping) -> list[int]:
    """Data classes whose jobs may run on this node. Class 0: the default partition."""
    choices = {0: PartitionChoice(names.partition or snapshot.default_partition), **names.data_classes}
    return [number for number, choice in choices.items() if is_node_eligible(node, choice, snapshot)]


def check_request(job: Job, data_class: int, snapshot: ClusterSnapshot, names: NameMapping) -> None:
    """Raises Invalid. If a job may run in several partitions, one that accepts it is enough."""
    if 0 < job.resources.gpus < 1:
        message = "Slurm allocates whole GPUs, not fractions of a GPU."
        raise _invalid("gpus", message, "Request a whole GPU: --gpus 1.")
    if job.resources.gpu_memory_mib is not None:
        hint = "Request a GPU type instead: --gpu-type."
        raise _invalid("gpu_memory", "Slurm has no information about GPU memory.", hint)
    try:
        choice = choose_partition(job, data_class, names)
        kind = (
            require_safe_word(names.slurm_gpu_type(job.resources.gpu_type), "GPU type")
            if job.resources.gpu_type
            else None
        )
    except UnsupportedRequest as error:
        hint = "Request other labels or another GPU type. An admin can change [slurm] in cluster.toml."
        raise _invalid("labels", f"Slurm cannot run this job: {error}.", hint) from error
    if not snapshot.partitions:
        return
    refusals = []
    for name in _names(choice, snapshot):
        refusal = next(_refusals(job, choice, kind, name, snapshot), None)
        if refusal is None:
            return
        refusals.append(refusal)
    raise refusals[0]


def check_priority_class(job: Job, names: NameMapping, accounts: SlurmAccounts) -> None:
    """Raises Invalid for a priority class whose QOS Slurm would refuse. If unknown, Slurm decides later."""
    qos = names.slurm_qos(job.priority_class)
    if qos is None or (reason := accounts.qos_refusal_reason(job.unix_user, job.project, qos)) is None:
        return
    hint = "Use the class normal. An admin can add the classes to Slurm: helio slurm apply, or qos in [slurm]."
    message = f"Slurm would refuse the class {job.priority_class}: {reason}."
    raise _invalid("priority_class", message, hint, "not available in Slurm for this project")


def _names(choice: PartitionChoice, snapshot: ClusterSnapshot) -> list[str]:
    chosen = choice.partition or snapshot.default_partition
    if chosen is None:
        hint = "An admin can set partition in [slurm] of cluster.toml."
        raise _invalid("labels", "Slurm has no default partition, and cluster.toml sets none.", hint)
    return chosen.split(",")


def _refusals(
    job: Job, choice: PartitionChoice, kind: str | None, name: str, snapshot: ClusterSnapshot
) -> Iterator[Invalid]:
    partition = snapshot.partitions.get(name)
    if partition is None:
        known = ", ".join(sorted(snapshot.partitions))
        hint = f"Partitions are: {known}. An admin can correct [slurm] in cluster.toml."
        yield _invalid("labels", f"Slurm has no partition {name}, which this job needs.", hint)
        return
    if not partition.accepts_jobs:
        yield _invalid(
            "labels", f"Slurm's partition {name} accepts no new jobs.", "Try again later, or ask an admin."
        )
    yield from _too_long(job, partition)
    nodes = [node for node in snapshot.nodes if node.name in partition.nodes]
    suitable = [
        node for node in nodes if is_node_eligible(node.name, PartitionChoice(None, choice.features), snapshot)
    ]
    if not suitable:
        known = ", ".join(sorted({feature for node in nodes for feature in node.features})) or "none"
        message = f"No node in Slurm's partition {name} has the features {' and '.join(choice.features)}."
        yield _invalid("labels", message, f"Features there: {known}.")
    yield from _too_large(job, kind, suitable, partition)


def _too_long(job: Job, partition: SlurmPartition) -> Iterator[Invalid]:
    limit, maximum = job.time_limit_seconds, partition.max_run_seconds
    if limit is not None and maximum is not None and limit > maximum and not job.overtime:
        message = f"Slurm's partition {partition.name} has a time limit of {_format_duration(maximum)}."
        hint = "Request less time, and let the job save checkpoints so that it can continue from there."
        yield _invalid("time_limit", message, hint, f"must be at most {maximum} seconds")


def _too_large(job: Job, kind: str | None, nodes: list[SlurmNode], partition: SlurmPartition) -> Iterator[Invalid]:
    tasks, spread = job.placement.tasks, job.placement.layout is TaskLayout.SPREAD
    counts = sorted((_tasks_on(node, job.resources, kind) for node in nodes), reverse=True)
    counts = [min(count, 1) if spread else count for count in counts][: partition.max_nodes]
    if sum(counts) >= tasks:
        return
    if not any(counts):
        cpus = max((node.cpus for node in nodes), default=0)
        memory = max((node.memory_mib for node in nodes), default=0)
        message = f"No node in Slurm's partition {partition.name} is large enough for this job."
        largest = f"{format_count(cpus, 'CPU')}, {format_size(memory)} of memory"
        hint = f"Largest per node: {largest}; GPUs: {_format_gpus(nodes)}."
        yield _invalid("gpus" if job.resources.gpus else "cpus", message, hint)
        return
    limit = "" if partition.max_nodes is None else f" (at most {partition.max_nodes} nodes per job)"
    message = f"Slurm's partition {partition.name} can run {sum(counts)} tasks of this size{limit}, not {tasks}."
    yield _invalid("tasks", message, "Request fewer or smaller tasks.")


def _tasks_on(node: SlurmNode, resources: Resources, kind: str | None) -> int:
    """How many tasks fit on the empty node."""
    fitting = [node.cpus // max(1, resources.cpus), node.memory_mib // max(1, resources.memory_mib)]
    if resources.gpus:
        gpus = sum(count for name, count in node.gpus if kind is None or name == kind)
        fitting.append(gpus // math.ceil(resources.gpus))
    return min(fitting)


def _format_gpus(nodes: list[SlurmNode]) -> str:
    maximum: dict[str, int] = {}
    for node in nodes:
        for name, count in node.gpus:
            maximum[name] = max(maximum.get(name, 0), count)
    return ", ".join(f"{count} {name} per node" for name, count in sorted(maximum.items())) or "none"


def _format_duration(seconds: int) -> str:
    """`1d`, `36h`, `90m`."""
    units = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))
    size, letter = next(unit for unit in units if seconds % unit[0] == 0)
    return f"{seconds // size}{letter}"


def _invalid(name: str, message: str, hint: str, field_message: str | None = None) -> Invalid:
    return Invalid(message, hint, fields={name: field_message or message})
