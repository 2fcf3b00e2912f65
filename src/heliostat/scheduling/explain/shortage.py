"""What is free for a job that does not fit, in words: how many of its tasks, or how much on the best node."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from heliostat.scheduling.capacity import Capacity
from heliostat.scheduling.feasibility import format_cpus, format_gpus, format_memory, format_resources
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import NodeTable

_FOR_EVER = float("inf")
_NEARLY = 1e-6


@dataclass(frozen=True, slots=True)
class Shortage:
    """The cluster after a plan, for jobs of one project; what is kept from it is not free."""

    node_table: NodeTable
    capacity: Capacity
    shared_device_use: Mapping[str, float]  # how much of each shared device is in use
    project: str
    reserved_for_others: Array  # bool, by node: set aside as a whole for others at this moment

    def describe(self, shape: JobShape) -> str:
        """What it needs and what there is."""
        tasks = shape.placement.tasks
        if tasks > 1:
            return f"needs {format_needs(shape)}; there is room for {self._most_tasks(shape)} of its {tasks} tasks"
        place = self._best_node(shape)
        return f"needs {format_needs(shape)}{self._also(shape, place)}; {self._free_words(shape, place)}"

    def _most_tasks(self, shape: JobShape) -> int:
        """Of those it asks for; all of them do not fit."""
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
        """Of those that are up, not set aside and have such devices at all, the one on which most is free."""
        free, suitable = self.capacity.free, self.node_table.eligibility_of(shape)
        kinds = [kind for kind in suitable.device_kinds if kind >= 0]
        having = (
            self.node_table.gpus[:, kinds].sum(axis=1) > 0
            if kinds
            else np.ones(len(suitable.eligible_up_nodes), bool)
        )
        wishes = (
            suitable.eligible_up_nodes & having & ~self.reserved_for_others,
            suitable.eligible_up_nodes & having,
            suitable.eligible_up_nodes,
        )
        nodes = next(np.flatnonzero(wish) for wish in wishes if wish.any())
        gpus = free.gpus[:, kinds].sum(axis=1).astype(float) if kinds else np.zeros(len(free.cpus))
        for node, left in self._left(kinds):
            gpus[node] += left
        return int(nodes[np.lexsort((-free.cpus[nodes], -gpus[nodes]))[0]])

    def _left(self, kinds: list[int]) -> Iterator[tuple[int, float]]:
        """Of each shared device: where it is, and what nobody uses of it."""
        machines = self.node_table
        for uuid, used in self.shared_device_use.items():
            if (
                uuid in machines.unusable_devices
                or machines.kind_of_device.get(uuid) not in kinds
                or used > 1 - _NEARLY
            ):
                continue
            yield machines.node_of_device[uuid], round(1 - used, 2)

    def _also(self, shape: JobShape, place: int) -> str:
        """What else it asks for and does not find there."""
        wanted, free = shape.resources, self.capacity.free
        if not wanted.gpus:
            return ""
        lacking = [format_cpus(wanted.cpus)] if free.cpus[place] < wanted.cpus else []
        lacking += [format_memory(wanted.memory_mib)] if free.memory_mib[place] < wanted.memory_mib else []
        return f" with {' and '.join(lacking)}" if lacking else ""

    def _free_words(self, shape: JobShape, place: int) -> str:
        free, node = self.capacity.free, self.node_table.nodes[place]
        kinds = [kind for kind in self.node_table.eligibility_of(shape).device_kinds if kind >= 0]
        count = max(0, int(free.gpus[place][kinds].sum())) if kinds else 0
        parts = [format_gpus(count, shape.resources.gpu_type)] if kinds else []
        parts.append(format_cpus(max(0, int(free.cpus[place]))))
        if free.memory_mib[place] < shape.resources.memory_mib:
            parts.append(format_memory(max(0, int(free.memory_mib[place]))))
        trouble = [device.problem or device.used_outside for device in node.devices if not device.is_available]
        out_of_use = f" ({len(trouble)} out of use: {trouble[0]})" if trouble and kinds else ""
        short = count < shape.resources.device_count
        left = [part for where, part in self._left(kinds) if where == place] if short else []
        shared = _shared_words(left, shape.resources.gpu_type)
        return f"{', '.join(parts)} are free on {node.name}{shared}{out_of_use}"


def format_needs(shape: JobShape) -> str:
    wanted, placement = shape.resources, shape.placement
    each = format_resources(wanted)
    if wanted.gpus:
        each = format_gpus(wanted.gpus, wanted.gpu_type, wanted.gpu_memory_mib)
    if placement.tasks > 1:
        how = "each on a node of its own" if placement.layout == "spread" else "at once"
        return f"{placement.tasks} tasks of {each} {how}"
    whole = " alone on a node" if placement.exclusive else " on one node" if wanted.device_count > 1 else ""
    return each + whole


def _shared_words(left: list[float], gpu_type: str | None) -> str:
    """` (2 GPUs are shared and have 0.5 left each)`."""
    if not left:
        return ""
    if len(left) == 1:
        return f" ({format_gpus(1, gpu_type)} is shared and has {left[0]:g} left)"
    how_much = f"{left[0]:g} left each" if len(set(left)) == 1 else f"at most {max(left):g} left"
    return f" ({format_gpus(len(left), gpu_type)} are shared and have {how_much})"
