"""What Slurm has as of a few seconds ago: nodes, partitions, reservations; and what it could never run."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from heliostat.engines.slurm.accounts.sacctmgr import SlurmAccounts
from heliostat.engines.slurm.arrays import MAX_ARRAY_SIZE
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
from heliostat.engines.slurm.script import SubmissionContext
from heliostat.errors import Invalid
from heliostat.models import Job, Node, Resources, TaskLayout

_OLD_SECONDS = 5.0


@dataclass(frozen=True)
class ClusterSnapshot:
    """What is known of Slurm's side, as of a few seconds ago."""

    partitions: Mapping[str, SlurmPartition] = field(default_factory=dict)
    nodes: tuple[SlurmNode, ...] = ()
    reservations: tuple[SlurmReservation, ...] | None = None  # None: not known

    @property
    def default_partition(self) -> str | None:
        """The partition of jobs that name none."""
        return next((name for name, one in self.partitions.items() if one.is_default), None)

    @property
    def gpu_types(self) -> set[str]:
        return {kind for node in self.nodes for kind, _ in node.gpus}

    @cached_property
    def features_by_node(self) -> dict[str, frozenset[str]]:
        """By node."""
        return {node.name: frozenset(node.features) for node in self.nodes}

    @property
    def max_run_seconds(self) -> dict[str, int]:
        """By partition, where there is a limit; by "" that of the default one."""
        limits = {
            name: one.max_run_seconds for name, one in self.partitions.items() if one.max_run_seconds is not None
        }
        return limits | ({"": limits[self.default_partition]} if self.default_partition in limits else {})


class ClusterState:
    """Read by the thread that talks to Slurm; all others see the newest snapshot."""

    def __init__(self, client: SlurmClient, site: SubmissionContext) -> None:
        self._client = client
        self.submission_context = site  # with the names and limits that Slurm has
        self.nodes: list[Node] = []
        self.snapshot = ClusterSnapshot()
        self.max_array_size = MAX_ARRAY_SIZE
        self.on_change: Callable[[], None] = lambda: None
        self._old_at = 0.0

    @property
    def device_types(self) -> dict[str, str]:
        """By uuid."""
        return {device.uuid: device.type for node in self.nodes for device in node.devices}

    @property
    def reservation_names(self) -> list[str]:
        return [one.name for one in self.snapshot.reservations or ()]

    def refresh_if_stale(self) -> None:
        if time.monotonic() >= self._old_at:
            self.refresh()

    def refresh(self) -> None:
        snapshot = self.snapshot = read_cluster_snapshot(self._client)
        self.max_array_size = self._client.max_array_size() or MAX_ARRAY_SIZE
        names = self.submission_context.name_mapping.with_observed_gpu_types(snapshot.gpu_types)
        self.submission_context = replace(
            self.submission_context, name_mapping=names, max_run_seconds=snapshot.max_run_seconds
        )
        nodes = apply_name_mapping([make_node(node) for node in snapshot.nodes], snapshot, names)
        self._old_at = time.monotonic() + _OLD_SECONDS
        if nodes != self.nodes:
            self.nodes = nodes
            self.on_change()


def read_cluster_snapshot(client: SlurmClient) -> ClusterSnapshot:
    return ClusterSnapshot(client.partitions(), tuple(client.nodes()), tuple(client.reservations()))


def apply_name_mapping(nodes: Sequence[Node], snapshot: ClusterSnapshot, names: NameMapping) -> list[Node]:
    """With the labels, data classes and types of GPUs that stand for what Slurm has there."""
    types = {theirs: ours for ours, theirs in names.configured_gpu_types.items()}
    return [
        replace(
            node,
            devices=tuple(replace(one, type=types.get(one.type, one.type)) for one in node.devices),
            labels={**node.labels, **_labels(node.name, snapshot, names)},
            min_data_class=min(classes, default=0),
            data_class=max(classes, default=0),
        )
        for node in nodes
        for classes in [_classes(node.name, snapshot, names)]
    ]


def is_node_eligible(node: str, place: PartitionChoice, snapshot: ClusterSnapshot) -> bool:
    """Whether a node is in one of its partitions and has its features."""
    if not snapshot.features_by_node.get(node, frozenset()) >= set(place.features):
        return False
    if place.partition is None:
        return True
    names = place.partition.split(",")
    return any(node in snapshot.partitions[name].nodes for name in names if name in snapshot.partitions)


def _labels(node: str, snapshot: ClusterSnapshot, names: NameMapping) -> dict[str, str]:
    there = (label for label, place in names.labels.items() if is_node_eligible(node, place, snapshot))
    return {name: value for name, _, value in (label.partition("=") for label in there)}


def _classes(node: str, snapshot: ClusterSnapshot, names: NameMapping) -> list[int]:
    """Which classes of data are sent there: class 0 too, where jobs go that nothing sends elsewhere."""
    places = {0: PartitionChoice(names.partition or snapshot.default_partition), **names.data_classes}
    return [number for number, place in places.items() if is_node_eligible(node, place, snapshot)]


def check_request(job: Job, data_class: int, snapshot: ClusterSnapshot, names: NameMapping) -> None:
    """Raises Invalid. Where a job may go to several partitions, one that takes it is enough."""
    if 0 < job.resources.gpus < 1:
        raise _invalid("gpus", "Slurm gives out whole GPUs here, not parts.", "Ask for a whole one: --gpus 1.")
    if job.resources.gpu_memory_mib is not None:
        hint = "Ask for a type instead: --gpu-type."
        raise _invalid("gpu_memory", "Slurm does not know how much memory a GPU has.", hint)
    try:
        place = choose_partition(job, data_class, names)
        kind = (
            require_safe_word(names.slurm_gpu_type(job.resources.gpu_type), "GPU type")
            if job.resources.gpu_type
            else None
        )
    except UnsupportedRequest as error:
        hint = "Ask for other labels or another GPU type, or ask an admin: see cluster.toml."
        raise _invalid("labels", f"Slurm cannot run this: {error}.", hint) from error
    if not snapshot.partitions:
        return
    refusals = []
    for name in _names(place, snapshot):
        refusal = next(_refusals(job, place, kind, name, snapshot), None)
        if refusal is None:
            return
        refusals.append(refusal)
    raise refusals[0]


def check_priority_class(job: Job, names: NameMapping, accounts: SlurmAccounts) -> None:
    """Raises Invalid for a priority class whose QOS Slurm would refuse. What is not known is left to Slurm."""
    qos = names.slurm_qos(job.priority_class)
    if qos is None or (said := accounts.qos_refusal_reason(job.unix_user, job.project, qos)) is None:
        return
    hint = "Ask for the class normal; or an admin tells Slurm the classes: helio slurm apply, or qos in [slurm]."
    message = f"Slurm would refuse the class {job.priority_class}: {said}."
    raise _invalid("priority_class", message, hint, "not known to Slurm for this project")


def _names(place: PartitionChoice, snapshot: ClusterSnapshot) -> list[str]:
    chosen = place.partition or snapshot.default_partition
    if chosen is None:
        hint = "An admin can set partition in [slurm] of cluster.toml."
        raise _invalid("labels", "Slurm has no default partition, and none is set here.", hint)
    return chosen.split(",")


def _refusals(
    job: Job, place: PartitionChoice, kind: str | None, name: str, snapshot: ClusterSnapshot
) -> Iterator[Invalid]:
    partition = snapshot.partitions.get(name)
    if partition is None:
        known = ", ".join(sorted(snapshot.partitions))
        hint = f"Partitions are: {known}. An admin can correct [slurm] in cluster.toml."
        yield _invalid("labels", f"Slurm has no partition {name}, where this job would go.", hint)
        return
    if not partition.accepts_jobs:
        yield _invalid(
            "labels", f"Slurm's partition {name} takes no new jobs.", "Try again later, or ask an admin."
        )
    yield from _too_long(job, partition)
    nodes = [node for node in snapshot.nodes if node.name in partition.nodes]
    suitable = [
        node for node in nodes if is_node_eligible(node.name, PartitionChoice(None, place.features), snapshot)
    ]
    if not suitable:
        known = ", ".join(sorted({feature for node in nodes for feature in node.features})) or "none"
        message = f"No node in Slurm's partition {name} has the features {' and '.join(place.features)}."
        yield _invalid("labels", message, f"Features there: {known}.")
    yield from _too_large(job, kind, suitable, partition)


def _too_long(job: Job, partition: SlurmPartition) -> Iterator[Invalid]:
    limit, most = job.time_limit_seconds, partition.max_run_seconds
    if limit is not None and most is not None and limit > most and not job.overtime:
        message = f"Slurm's partition {partition.name} lets jobs run for at most {_in_words(most)}."
        hint = "Ask for less, and let the job save its work so that it can go on from there."
        yield _invalid("time_limit", message, hint, f"must be at most {most} seconds")


def _too_large(job: Job, kind: str | None, nodes: list[SlurmNode], partition: SlurmPartition) -> Iterator[Invalid]:
    tasks, spread = job.placement.tasks, job.placement.layout is TaskLayout.SPREAD
    counts = sorted((_tasks_on(node, job.resources, kind) for node in nodes), reverse=True)
    counts = [min(count, 1) if spread else count for count in counts][: partition.max_nodes]
    if sum(counts) >= tasks:
        return
    if not any(counts):
        cpus = max((node.cpus for node in nodes), default=0)
        memory = max((node.memory_mib for node in nodes), default=0)
        message = f"No node in Slurm's partition {partition.name} has what this asks for, all at once."
        hint = f"The largest has {cpus} cpus, the largest memory is {memory} MiB; GPUs: {_gpus_in_words(nodes)}."
        yield _invalid("gpus" if job.resources.gpus else "cpus", message, hint)
        return
    limit = "" if partition.max_nodes is None else f" on the {partition.max_nodes} nodes a job may have"
    message = f"Slurm's partition {partition.name} holds {sum(counts)} tasks of this size{limit}, not {tasks}."
    yield _invalid("tasks", message, "Ask for fewer tasks, or for less in each.")


def _tasks_on(node: SlurmNode, wanted: Resources, kind: str | None) -> int:
    """How many the empty node holds."""
    fitting = [node.cpus // max(1, wanted.cpus), node.memory_mib // max(1, wanted.memory_mib)]
    if wanted.gpus:
        gpus = sum(count for name, count in node.gpus if kind is None or name == kind)
        fitting.append(gpus // math.ceil(wanted.gpus))
    return min(fitting)


def _gpus_in_words(nodes: list[SlurmNode]) -> str:
    most: dict[str, int] = {}
    for node in nodes:
        for name, count in node.gpus:
            most[name] = max(most.get(name, 0), count)
    return ", ".join(f"{count} {name} on a node" for name, count in sorted(most.items())) or "none"


def _in_words(seconds: int) -> str:
    """`1d`, `36h`, `90m`."""
    size, unit = next((one for one in ((86400, "d"), (3600, "h"), (60, "m")) if seconds % one[0] == 0), (1, "s"))
    return f"{seconds // size}{unit}"


def _invalid(name: str, message: str, hint: str, said: str | None = None) -> Invalid:
    return Invalid(message, hint, fields={name: said or message})
