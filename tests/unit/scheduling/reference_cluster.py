"""Reference implementation of free resources, device by device in plain Python: slow and simple."""

from collections.abc import Iterable

from heliostat.models import Job, Node, NodeState, TaskPlacement

TOLERANCE = 1e-6


class ReferenceCluster:
    """Free resources of each node and device."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.cpus = {name: node.cpus for name, node in self.nodes.items()}
        self.memory = {name: node.memory_mib for name, node in self.nodes.items()}
        self.devices = {device.uuid: 1.0 for node in self.nodes.values() for device in node.devices}
        self.jobs: dict[str, dict[int, Job]] = {name: {} for name in self.nodes}

    def copy(self) -> "ReferenceCluster":
        other = ReferenceCluster(self.nodes.values())
        other.cpus, other.memory, other.devices = self.cpus.copy(), self.memory.copy(), self.devices.copy()
        other.jobs = {name: jobs.copy() for name, jobs in self.jobs.items()}
        return other

    def put(self, job: Job, places: Iterable[TaskPlacement]) -> None:
        self._change(job, places, -1)
        for place in places:
            self.jobs[place.node][job.id] = job

    def remove(self, job: Job, places: Iterable[TaskPlacement]) -> None:
        self._change(job, places, 1)
        for place in places:
            self.jobs[place.node].pop(job.id, None)

    def _change(self, job: Job, places: Iterable[TaskPlacement], sign: int) -> None:
        requested = job.resources
        for place in places:
            self.cpus[place.node] += sign * requested.cpus
            self.memory[place.node] += sign * requested.memory_mib
            for uuid in place.devices:
                self.devices[uuid] += sign * (requested.gpus if requested.gpus < 1 else 1)

    def overfull(self) -> list[str]:
        """Resources that are allocated more than once."""
        found = [f"cpus of {name}" for name, left in self.cpus.items() if left < 0]
        found += [f"memory of {name}" for name, left in self.memory.items() if left < 0]
        found += [f"device {uuid}" for uuid, left in self.devices.items() if left < -TOLERANCE]
        alone = [
            name
            for name, jobs in self.jobs.items()
            if len(jobs) > 1 and any(is_exclusive(j) for j in jobs.values())
        ]
        return found + [f"{name} is shared with one that wants to be alone" for name in alone]

    def kinds(self) -> list[tuple[int, str]]:
        """Kinds of device as (memory, type), the smallest first."""
        return sorted({(d.memory_mib, d.type) for node in self.nodes.values() for d in node.devices})

    def places_for(
        self, job: Job, data_class: int, names: Iterable[str] | None = None
    ) -> tuple[TaskPlacement, ...] | None:
        """A placement of all its tasks on these nodes, with devices of one kind; None: it does not fit."""
        for kind in self.kinds() if job.resources.gpus else [None]:
            trial, places = self.copy(), list[TaskPlacement]()
            for name in self.nodes if names is None else names:
                while len(places) < job.placement.tasks and (place := trial._place(job, data_class, name, kind)):
                    trial.put(job, [place])
                    places.append(place)
                    if job.placement.layout == "spread":
                        break
            if len(places) == job.placement.tasks:
                return tuple(places)
        return None

    def _place(self, job: Job, data_class: int, name: str, kind: tuple[int, str] | None) -> TaskPlacement | None:
        """One more of its tasks on this node."""
        requested, others = job.resources, self.jobs[name].keys() - {job.id}
        if not is_allowed(job, data_class, self.nodes[name]) or self.nodes[name].state is not NodeState.UP:
            return None
        if self.cpus[name] < requested.cpus or self.memory[name] < requested.memory_mib:
            return None
        if others and (is_exclusive(job) or any(is_exclusive(self.jobs[name][number]) for number in others)):
            return None
        uuids = self._devices_for(job, name, kind)
        return None if uuids is None else TaskPlacement(name, uuids)

    def _devices_for(self, job: Job, name: str, kind: tuple[int, str] | None) -> tuple[str, ...] | None:
        requested = job.resources
        if kind is None:
            return ()
        if kind[0] < (requested.gpu_memory_mib or 0) or (requested.gpu_type or kind[1]).lower() != kind[1].lower():
            return None
        usable = [d.uuid for d in self.nodes[name].devices if d.is_available and (d.memory_mib, d.type) == kind]
        if requested.gpus < 1:
            fitting = [uuid for uuid in usable if self.devices[uuid] >= requested.gpus - TOLERANCE]
            return (min(fitting, key=lambda uuid: self.devices[uuid]),) if fitting else None
        free = [uuid for uuid in usable if self.devices[uuid] > 1 - TOLERANCE]
        return tuple(free[: requested.device_count]) if len(free) >= requested.device_count else None


def is_exclusive(job: Job) -> bool:
    return job.placement.exclusive


def is_allowed(job: Job, data_class: int, node: Node) -> bool:
    """Checks labels, data class and fractions of devices."""
    labels = set(node.labels) | {f"{name}={value}" for name, value in node.labels.items()}
    splits = node.splits_devices or not 0 < job.resources.gpus < 1
    return set(job.placement.labels) <= labels and node.min_data_class <= data_class <= node.data_class and splits
