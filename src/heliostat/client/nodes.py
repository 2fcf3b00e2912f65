"""The client's verbs on nodes and reservations."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NotRequired, TypedDict

from heliostat.client.transport import ApiResource, drop_none, quote_path_segment


class Device(TypedDict):
    uuid: str
    index: int
    type: str
    name: str
    memory_mib: int
    memory_used_mib: int
    utilisation: int | None
    temperature: int | None
    problem: str | None
    used_outside: str | None
    job_id: int | None
    job_ids: list[int]  # several when they share it


class NodeReservation(TypedDict):
    """The next time for which a node is set aside."""

    name: str  # of the reservation
    project: str | None  # None: maintenance
    gpus: int | None  # None: the whole node
    reason: str
    starts_at: str
    ends_at: str


class Recomposition(TypedDict):
    node: str
    gpus: dict[str, int]
    steps: list[str]
    at: int  # the step that is being done
    error: str | None  # why it has not worked yet; it is tried again
    is_done: bool  # nothing is being changed there


class Node(TypedDict):
    name: str
    state: str
    reason: str | None
    cpus: int
    memory_mib: int
    cpus_used: int
    memory_used_mib: int
    gpus_used: float
    jobs: list[int]
    others: list[str]  # jobs that went to Slurm without Heliostat: slurm:1234
    notes: list[str]
    labels: dict[str, str]
    data_class: int
    min_data_class: int
    splits_devices: bool
    devices: list[Device]
    exclusive_job: int | None  # which nobody else may join
    reserved: list[NodeReservation]  # now, or within a week
    note: NotRequired[str | None]  # after a change: what it means for the jobs there


class ReservationOccurrence(TypedDict):
    starts_at: str
    ends_at: str


class Reservation(TypedDict):
    name: str
    project: str | None  # None: maintenance
    nodes: list[str]
    gpus_per_node: int | None  # None: whole nodes
    starts_at: str
    ends_at: str
    weeks: int
    reason: str
    time_zone: str  # in which it takes place at the same time of day every week
    next: ReservationOccurrence | None  # None: it is over


NodeList = list[Node]
ReservationList = list[Reservation]


class Nodes(ApiResource):
    def list(self) -> NodeList:
        return self._items("/nodes")

    def get(self, name: str) -> Node:
        found: Node = self._transport.call("GET", _path(name))
        return found

    def drain(self, node: str, reason: str) -> Node:
        """Lets running jobs end and starts no more there."""
        drained: Node = self._transport.call("POST", f"{_path(node)}/drain", {"reason": reason})
        return drained

    def resume(self, node: str) -> Node:
        resumed: Node = self._transport.call("POST", f"{_path(node)}/resume")
        return resumed

    def recompose(
        self, node: str, gpus: Mapping[str, int] | None = None, *, dry_run: bool = False
    ) -> Recomposition:
        """Begins to give a dynamic node of Slurm these GPUs, by type; without any, how far that is."""
        path = f"{_path(node)}/recompose"
        if gpus is None:
            under_way: Recomposition = self._transport.call("GET", path)
            return under_way
        begun: Recomposition = self._transport.call("POST", path, {"gpus": dict(gpus), "dry_run": dry_run})
        return begun

    def change(
        self,
        node: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        data_class: int | None = None,
        min_data_class: int | None = None,
        splits_devices: bool | None = None,
    ) -> Node:
        """None leaves a setting as it is; a label of None is taken away, the others stay."""
        body = drop_none(
            labels=labels, data_class=data_class, min_data_class=min_data_class, splits_devices=splits_devices
        )
        changed: Node = self._transport.call("PATCH", _path(node), body)
        return changed


class Reservations(ApiResource):
    def list(self, *, past: bool = False) -> ReservationList:
        """By their next time; with `past`, also those that are over."""
        return self._items("/reservations", [("past", past or None)])

    def create(  # noqa: PLR0913 - the fields of a reservation
        self,
        name: str,
        nodes: Sequence[str],
        starts_at: datetime | str,
        ends_at: datetime | str,
        *,
        project: str | None = None,
        gpus_per_node: int | None = None,
        weeks: int | None = None,
        reason: str | None = None,
    ) -> Reservation:
        """For a project, or without one for maintenance. Times without a zone are meant in the local one."""
        body = drop_none(
            name=name,
            nodes=list(nodes),
            starts_at=_with_zone(starts_at),
            ends_at=_with_zone(ends_at),
            project=project,
            gpus_per_node=gpus_per_node,
            weeks=weeks,
            reason=reason,
        )
        made: Reservation = self._transport.call("POST", "/reservations", body)
        return made

    def delete(self, name: str) -> None:
        self._transport.call("DELETE", f"/reservations/{quote_path_segment(name)}")


def _path(node: str) -> str:
    return f"/nodes/{quote_path_segment(node)}"


def _with_zone(at: datetime | str) -> str:
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return time.isoformat() if time.tzinfo else time.astimezone().isoformat()
