"""Client API for nodes."""

from collections.abc import Mapping
from typing import NotRequired, TypedDict

from heliostat.client.transport import ApiResource, drop_none, quote_path_segment


class Device(TypedDict):
    uuid: str
    index: int  # of the card
    number: str  # "0", or "0:3" for slice 3 of GPU 0
    type: str
    name: str
    memory_mib: int
    memory_used_mib: int
    utilisation: int | None
    temperature: int | None
    problem: str | None
    used_outside: str | None
    job_id: int | None
    job_ids: list[int]  # several if jobs share the device
    slice_index: int | None  # of a MIG slice on its card
    card_uuid: str | None  # of the card of a MIG slice
    card_fraction: float  # the part of a GPU that it counts as: 1 for whole GPUs


class GpuErrorEntry(TypedDict):
    kind: str  # "xid_79", "ecc"
    at: str
    description: str
    job_id: int | None  # whose program caused it


class GpuHistory(TypedDict):
    uuid: str
    number: str
    first_seen_at: str
    used_hours: float  # by jobs
    peak_temperature: int | None
    failed_at: str | None  # taken out since then
    failure: str | None  # and what to do
    errors: list[GpuErrorEntry]  # the newest first


class GpuTestStep(TypedDict):
    name: str
    passed: bool | None  # None: not possible here
    detail: str


class GpuTest(TypedDict):
    passed: bool  # jobs use the GPU again
    steps: list[GpuTestStep]


class NodeReservation(TypedDict):
    """The current or next reservation period of a node."""

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
    at: int  # index of the current step
    error: str | None  # of the last try, which is repeated
    is_done: bool  # no change is in progress


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
    foreign_jobs: list[str]  # submitted to Slurm directly: slurm:1234
    notes: list[str]
    labels: dict[str, str]
    data_class: int
    min_data_class: int
    splits_devices: bool
    devices: list[Device]
    exclusive_job: int | None  # the job that excludes all others from the node
    reserved: list[NodeReservation]  # now, or within a week
    note: NotRequired[str | None]  # after a change: its effects on the jobs of the node


class ReservationOccurrence(TypedDict):
    starts_at: str
    ends_at: str


NodeList = list[Node]
GpuHistoryList = list[GpuHistory]


class Nodes(ApiResource):
    def list(self) -> NodeList:
        """All nodes by name."""
        return self._items("/nodes")

    def get(self, name: str) -> Node:
        """A node with its devices."""
        data: Node = self._transport.call("GET", _path(name))
        return data

    def drain(self, node: str, reason: str) -> Node:
        """Starts no new jobs on the node; its running jobs continue."""
        data: Node = self._transport.call("POST", f"{_path(node)}/drain", {"reason": reason})
        return data

    def resume(self, node: str) -> Node:
        """Ends a drain: jobs start on the node again."""
        data: Node = self._transport.call("POST", f"{_path(node)}/resume")
        return data

    def gpu_history(self, node: str) -> GpuHistoryList:
        """The GPUs that the node had last, with their use and errors."""
        return self._items(f"{_path(node)}/gpus")

    def test_gpu(self, node: str, number: int) -> GpuTest:
        """Tests a GPU that failed; if it passes, jobs use it again. Takes up to two minutes."""
        path = f"{_path(node)}/gpus/{number}/test"
        data: GpuTest = self._transport.call("POST", path, timeout_seconds=600.0)
        return data

    def resume_gpu(self, node: str, number: int, reason: str) -> Node:
        """Uses a GPU that failed again, without a test."""
        data: Node = self._transport.call("POST", f"{_path(node)}/gpus/{number}/resume", {"reason": reason})
        return data

    def recompose(
        self, node: str, gpus: Mapping[str, int] | None = None, *, dry_run: bool = False
    ) -> Recomposition:
        """Starts to change the GPUs of a dynamic Slurm node to these counts; without `gpus`, the progress."""
        path = f"{_path(node)}/recompose"
        if gpus is None:
            progress: Recomposition = self._transport.call("GET", path)
            return progress
        started: Recomposition = self._transport.call("POST", path, {"gpus": dict(gpus), "dry_run": dry_run})
        return started

    def change(
        self,
        node: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        data_class: int | None = None,
        min_data_class: int | None = None,
        splits_devices: bool | None = None,
    ) -> Node:
        """Settings that are None stay. A label with the value None is removed; labels that are not given stay."""
        body = drop_none(
            labels=labels, data_class=data_class, min_data_class=min_data_class, splits_devices=splits_devices
        )
        data: Node = self._transport.call("PATCH", _path(node), body)
        return data


def _path(node: str) -> str:
    return f"/nodes/{quote_path_segment(node)}"
