"""Client API for reservations of nodes."""

from collections.abc import Sequence
from datetime import datetime
from typing import TypedDict

from heliostat.client.nodes import ReservationOccurrence
from heliostat.client.transport import ApiResource, drop_none, quote_path_segment


class Reservation(TypedDict):
    name: str
    project: str | None  # None: maintenance
    nodes: list[str]
    gpus_per_node: int | None  # None: whole nodes
    starts_at: str
    ends_at: str
    weeks: int
    reason: str
    time_zone: str  # the time of day repeats weekly in this zone
    next: ReservationOccurrence | None  # None: it has ended


class RunningJob(TypedDict):
    """A running job that may still run when the reservation begins."""

    id: int
    user: str
    nodes: list[str]
    ends_at: str | None  # by its time limit; None: it has none, or may exceed it


class CreatedReservation(Reservation):
    running_jobs: list[RunningJob]  # of others, on its nodes


ReservationList = list[Reservation]


class Reservations(ApiResource):
    def list(self, *, past: bool = False) -> ReservationList:
        """Reservations by their next start; with `past`, also those that have ended."""
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
    ) -> CreatedReservation:
        """For a project, or for maintenance if `project` is None. Times without a zone are local times.

        Running jobs are not stopped: `running_jobs` are those that may still run when it begins.
        """
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
        data: CreatedReservation = self._transport.call("POST", "/reservations", body)
        return data

    def delete(self, name: str) -> None:
        """Deletes a reservation; all jobs may use its nodes again."""
        self._transport.call("DELETE", f"/reservations/{quote_path_segment(name)}")


def _with_zone(at: datetime | str) -> str:
    time = datetime.fromisoformat(at) if isinstance(at, str) else at
    return time.isoformat() if time.tzinfo else time.astimezone().isoformat()
