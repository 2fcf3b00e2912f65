"""The client's verbs on nodes and reservations."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote

from heliostat.client.shapes import ForeignJob, Node, Recomposition, Reservation
from heliostat.client.transport import Transport


class ClusterVerbs:
    _transport: Transport

    def nodes(self) -> list[Node]:
        found: list[Node] = self._transport.call("GET", "/nodes")["items"]
        return found

    def node(self, name: str) -> Node:
        found: Node = self._transport.call("GET", _path(name))
        return found

    def others(self, *, node: str | None = None, limit: int | None = None) -> list[ForeignJob]:
        """Jobs that went to Slurm without Heliostat: those that run, then those that wait."""
        query = [("node", node)] if node else []
        query += [("limit", str(limit))] if limit else []
        found: list[ForeignJob] = self._transport.call("GET", "/others", query=query)["items"]
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

    def change_node(
        self,
        node: str,
        *,
        labels: Mapping[str, str | None] | None = None,
        data_class: int | None = None,
        min_data_class: int | None = None,
        splits_devices: bool | None = None,
    ) -> Node:
        """None leaves a setting as it is; a label of None is taken away, the others stay."""
        settings = {
            "labels": labels,
            "data_class": data_class,
            "min_data_class": min_data_class,
            "splits_devices": splits_devices,
        }
        body = {name: value for name, value in settings.items() if value is not None}
        changed: Node = self._transport.call("PATCH", _path(node), body)
        return changed

    def reservations(self, *, past: bool = False) -> list[Reservation]:
        """By their next time; with `past`, also those that are over."""
        query = [("past", "true")] if past else []
        found: list[Reservation] = self._transport.call("GET", "/reservations", query=query)["items"]
        return found

    def create_reservation(  # noqa: PLR0913 - the fields of a reservation
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
        body: dict[str, Any] = {
            "name": name,
            "nodes": list(nodes),
            "starts_at": _with_zone(starts_at),
            "ends_at": _with_zone(ends_at),
            "project": project,
            "gpus_per_node": gpus_per_node,
            "weeks": weeks,
            "reason": reason,
        }
        given = {field: value for field, value in body.items() if value is not None}
        made: Reservation = self._transport.call("POST", "/reservations", given)
        return made

    def delete_reservation(self, name: str) -> None:
        self._transport.call("DELETE", f"/reservations/{quote(name, safe='')}")


def _path(node: str) -> str:
    return f"/nodes/{quote(node, safe='')}"


def _with_zone(at: datetime | str) -> str:
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return time.isoformat() if time.tzinfo else time.astimezone().isoformat()
