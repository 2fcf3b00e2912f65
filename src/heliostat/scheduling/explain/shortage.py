"""Description of missing resources: how many tasks of a job fit now, or what is free on the best node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from heliostat.models.amounts import format_count, format_size, join_words
from heliostat.scheduling.feasibility import format_gpus, format_resources
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.planned_capacity import Capacity

_FOR_EVER = float("inf")
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Shortage:
    """Free resources after a plan for the jobs of one project, without what is reserved for others."""

    node_table: NodeTable
    capacity: Capacity
    shared_device_use: Mapping[str, float]  # fraction of each shared device that is in use
    project: str
    reserved_for_others: Array  # bool, by node: the whole node is reserved for others now

    def describe(self, shape: JobShape) -> str:
        """What the job needs and what is free."""
        tasks = shape.placement.tasks
        if tasks > 1:
            fitting = self._most_tasks(shape)
            return (
                f"needs {format_needs(shape)}; {fitting} of {tasks} tasks {'fits' if fitting == 1 else 'fit'} now"
            )
        node = self._best_node(shape)
        return f"needs {format_needs(shape)}{self._also_missing(shape, node)}; {self._describe_free(shape, node)}"

    def _most_tasks(self, shape: JobShape) -> int:
        """The largest number of its tasks that fits now, by bisection; all of them do not fit."""
        fits, too_many = 0, shape.placement.tasks
        while too_many - fits > 1:
            tried = (fits + too_many) // 2
            fewer = replace(shape, placement=replace(shape.placement, tasks=tried))
            if self.capacity.find_placement(fewer, self.project, _FOR_EVER) is not None:
                fits = tried
            else:
                too_many = tried
        return fits

    def _best_node(self, shape: JobShape) -> int:
        """The node with the most free GPUs, then cpus; preferably one that is not reserved and has such GPUs."""
        free, eligibility = self.capacity.free, self.node_table.eligibility_of(shape)
        kinds = [kind for kind in eligibility.device_kinds if kind >= 0]
        has_devices = (
            self.node_table.gpus[:, kinds].sum(axis=1) > 0
            if kinds
            else np.ones(len(eligibility.eligible_up_nodes), bool)
        )
        preferences = (
            eligibility.eligible_up_nodes & has_devices & ~self.reserved_for_others,
            eligibility.eligible_up_nodes & has_devices,
            eligibility.eligible_up_nodes,
        )
        nodes = next(np.flatnonzero(mask) for mask in preferences if mask.any())
        gpus = free.gpus[:, kinds].sum(axis=1).astype(float) if kinds else np.zeros(len(free.cpus))
        for node, free_fraction in self._free_fractions(kinds):
            gpus[node] += free_fraction
        return int(nodes[np.lexsort((-free.cpus[nodes], -gpus[nodes]))[0]])

    def _free_fractions(self, kinds: list[int]) -> Iterator[tuple[int, float]]:
        """For each shared device: its node and its free fraction."""
        node_table = self.node_table
        for uuid, used in self.shared_device_use.items():
            if (
                uuid in node_table.unusable_devices
                or node_table.kind_of_device.get(uuid) not in kinds
                or used > 1 - _TOLERANCE
            ):
                continue
            yield node_table.node_of_device[uuid], round(1 - used, 2)

    def _also_missing(self, shape: JobShape, node: int) -> str:
        """Cpus and memory that are requested and not free on this node."""
        requested, free = shape.resources, self.capacity.free
        if not requested.gpus:
            return ""
        lacking = [format_count(requested.cpus, "CPU")] if free.cpus[node] < requested.cpus else []
        lacking += [format_size(requested.memory_mib)] if free.memory_mib[node] < requested.memory_mib else []
        return f" with {' and '.join(lacking)}" if lacking else ""

    def _describe_free(self, shape: JobShape, index: int) -> str:
        free, node = self.capacity.free, self.node_table.nodes[index]
        kinds = [kind for kind in self.node_table.eligibility_of(shape).device_kinds if kind >= 0]
        count = max(0, int(free.gpus[index][kinds].sum())) if kinds else 0
        parts = [format_gpus(count, shape.resources.gpu_type)] if kinds else []
        parts.append(format_count(max(0, int(free.cpus[index])), "CPU"))
        if free.memory_mib[index] < shape.resources.memory_mib:
            parts.append(format_size(max(0, int(free.memory_mib[index]))))
        problems = [device.problem or device.used_outside for device in node.devices if not device.is_available]
        unavailable = f" ({len(problems)} unavailable: {problems[0]})" if problems and kinds else ""
        short = count < shape.resources.device_count
        fractions = [free for where, free in self._free_fractions(kinds) if where == index] if short else []
        shared = _describe_shared(fractions, shape.resources.gpu_type)
        verb = "is" if parts == ["1 CPU"] else "are"
        return f"{join_words(parts)} {verb} free on {node.name}{shared}{unavailable}"


def format_needs(shape: JobShape) -> str:
    requested, placement = shape.resources, shape.placement
    each = format_resources(requested)
    if requested.gpus:
        each = format_gpus(requested.gpus, requested.gpu_type, requested.gpu_memory_mib)
    if placement.tasks > 1:
        how = ", each on its own node" if placement.layout == "spread" else " at once"
        return f"{placement.tasks} tasks of {each}{how}"
    where = " on an empty node" if placement.exclusive else " on one node" if requested.device_count > 1 else ""
    return each + where


def _describe_shared(fractions: list[float], gpu_type: str | None) -> str:
    """` (2 GPUs are shared, 0.5 free on each)`."""
    if not fractions:
        return ""
    if len(fractions) == 1:
        return f" ({format_gpus(1, gpu_type)} is shared, {fractions[0]:g} free)"
    free = (
        f"{fractions[0]:g} free on each" if len(set(fractions)) == 1 else f"at most {max(fractions):g} free on one"
    )
    return f" ({format_gpus(len(fractions), gpu_type)} are shared, {free})"
