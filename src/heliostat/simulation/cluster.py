"""The nodes of a replay; resources that are not specified are unlimited."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from heliostat.engines.simulated.cluster import DEVICE_MODELS
from heliostat.errors import Invalid
from heliostat.models import Device, Job, Node, count_cards
from heliostat.scheduling.policy import ChargeRates

UNLIMITED_CPUS = 1_000_000
UNLIMITED_MIB = 1_000_000_000
MAX_NODES = 10_000
MAX_GPUS_PER_NODE = 64
_GROUP = re.compile(r"(\d{1,5})x(?:(\d{1,2})(?:x([a-z0-9.-]{1,40}))?|cpu)", re.IGNORECASE)
_DEFAULT_TYPE = "GPU"


@dataclass(frozen=True)
class ReplayCluster:
    nodes_text: str
    nodes: tuple[Node, ...]

    @cached_property
    def gpus(self) -> float:
        return count_cards(device for node in self.nodes for device in node.devices)

    @cached_property
    def cpus(self) -> int:
        return sum(node.cpus for node in self.nodes)

    @property
    def usage_unit(self) -> str:
        """The resource in which utilisation is measured."""
        return "gpus" if self.gpus else "cpus"

    def size_of(self, job: Job) -> float:
        """How much of it all tasks of the job request."""
        return (job.resources.cards if self.gpus else job.resources.cpus) * job.placement.tasks

    @property
    def size(self) -> float:
        return self.gpus or self.cpus


def parse_cluster(text: str, cpus: int | None = None, memory_mib: int | None = None) -> ReplayCluster:
    """`8x8` (nodes x GPUs), `4x8xA100,10x2xT4`, `20xcpu`. Cpus and memory are per node; None: unlimited."""
    groups = [_read_group(part.strip()) for part in text.split(",")]
    if sum(count for count, _, _ in groups) > MAX_NODES:
        raise Invalid(f"Too many nodes: the limit is {MAX_NODES:,}.", "Use fewer nodes.")
    if cpus is None and not any(gpus for _, gpus, _ in groups):
        raise Invalid("Nodes without GPUs need a number of cpus.", "Give the cpus of each node: --cpus 32.")
    resources = (UNLIMITED_CPUS if cpus is None else cpus, UNLIMITED_MIB if memory_mib is None else memory_mib)
    return ReplayCluster(text, tuple(_nodes(groups, *resources)))


def read_current_cluster(
    name: str, found: Iterable[Mapping[str, Any]], cpus: int | None = None, memory_mib: int | None = None
) -> ReplayCluster:
    """Nodes as the API reports them, also those that are down. Cpus and memory: instead of their own."""
    nodes = tuple(
        Node(
            node["name"],
            cpus or node["cpus"],
            memory_mib or node["memory_mib"],
            tuple(
                Device(device["uuid"], device["index"], device["type"], device["name"], device["memory_mib"])
                for device in node["devices"]
            ),
            splits_devices=node["splits_devices"],
        )
        for node in found
    )
    if not nodes:
        raise Invalid("The cluster has no nodes.", "Describe nodes: --nodes 4x8xA100.")
    return ReplayCluster(name, nodes)


def charge_only_limited_resources(charges: ChargeRates, nodes: Collection[Node]) -> ChargeRates:
    """Unlimited cpus and memory cost nothing: charged, they would make an hour of the cluster so expensive that
    all usage looks like none, and shares would have no effect."""
    if any(node.cpus >= UNLIMITED_CPUS for node in nodes):
        charges = replace(charges, cpu=0.0)
    if any(node.memory_mib >= UNLIMITED_MIB for node in nodes):
        charges = replace(charges, memory_gib=0.0)
    return charges


def _read_group(part: str) -> tuple[int, int, str]:
    match = _GROUP.fullmatch(part)
    if match is None or int(match[1]) == 0:
        raise Invalid(f"{part!r} does not describe nodes.", "Write 8x4 (nodes x GPUs), 8x4xA100 or 20xcpu.")
    if match[2] is None:
        return int(match[1]), 0, "cpu"
    if not 1 <= int(match[2]) <= MAX_GPUS_PER_NODE:
        raise Invalid(
            f"A node has 1 to {MAX_GPUS_PER_NODE} GPUs, not {match[2]}.", "Write 20xcpu for nodes without GPUs."
        )
    return int(match[1]), int(match[2]), match[3] or _DEFAULT_TYPE


def _nodes(groups: Iterable[tuple[int, int, str]], cpus: int, memory_mib: int) -> Iterable[Node]:
    numbers: Counter[str] = Counter()
    for count, gpus, gpu_type in groups:
        for _ in range(count):
            numbers[gpu_type] += 1
            name = f"{gpu_type.lower()}-{numbers[gpu_type]:02d}"
            devices = tuple(_device(name, index, gpu_type) for index in range(gpus))
            yield Node(name, cpus, memory_mib, devices, splits_devices=True)


def _device(node: str, index: int, gpu_type: str) -> Device:
    model = DEVICE_MODELS.get(gpu_type.upper())
    memory_mib = model.memory_mib if model else UNLIMITED_MIB
    return Device(f"{node}/{index}", index, gpu_type, model.name if model else gpu_type, memory_mib)


def round_gpus(gpus: float) -> float:
    """A fraction of one GPU, or a whole number of GPUs."""
    return gpus if 0 < gpus < 1 else math.ceil(gpus)
