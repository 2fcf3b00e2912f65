"""Names and sizes of the GPUs of a job."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from heliostat.models import AttemptRecord, TaskPlacement
from heliostat.models.nodes import Device


@dataclass(frozen=True, slots=True)
class JobDevices:
    """The GPUs of a job, in the order of their series."""

    names: tuple[str, ...] = ()  # as in the list of its GPUs: GPU 4
    memory_mib: tuple[int | None, ...] = ()  # of the newest attempt; None: unknown

    @classmethod
    def of_attempts(cls, attempts: Sequence[AttemptRecord], known: Mapping[str, Device]) -> "JobDevices":
        """A requeued job can have other GPUs than before: `GPU 4, GPU 1`."""
        placed = [_placed_devices(attempt) for attempt in attempts if attempt.started_at]
        names_node = len({node for devices in placed for node, _ in devices}) > 1
        ranks = zip_longest(*([_name(*device, known, names_node) for device in devices] for devices in placed))
        names = (", ".join(dict.fromkeys(name for name in rank if name)) for rank in ranks)
        newest = placed[-1] if placed else []
        sizes = (known[uuid].memory_mib if uuid in known else None for _, uuid in newest)
        return cls(tuple(names), tuple(sizes))


def _placed_devices(attempt: AttemptRecord) -> list[tuple[str, str]]:
    places = attempt.places or (TaskPlacement(attempt.node, attempt.devices),)
    return [(place.node, uuid) for place in places for uuid in place.devices]


def _name(node: str, uuid: str, known: Mapping[str, Device], names_node: bool) -> str:
    name = f"GPU {known[uuid].number}" if uuid in known else uuid
    return f"{node} {name}" if names_node else name
