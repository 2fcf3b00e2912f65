"""Endpoints of reservations of nodes."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from heliostat.api.account_schemas import GroupName, ListResponse
from heliostat.api.field_types import SingleLine
from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.time_fields import ZonedTime
from heliostat.models import Reservation
from heliostat.models.reservations import MAX_RESERVATION_WEEKS
from heliostat.services.cluster import reservations as services

router = BodyRouter(tags=["cluster"])
StrictInteger = Annotated[int, Field(strict=True)]
NodeName = Annotated[str, StringConstraints(min_length=1, max_length=128, strict=True)]


class ReservationBody(RequestBody):
    """Nodes or GPUs to reserve. Without a project the reservation is for maintenance: no jobs run."""

    name: Annotated[GroupName, StringConstraints(max_length=200, strict=True)]
    nodes: Annotated[list[NodeName], Entries(10_000, minimum=1)]
    starts_at: ZonedTime
    ends_at: ZonedTime
    project: Annotated[str, StringConstraints(max_length=200, strict=True)] | None = None
    gpus_per_node: Annotated[StrictInteger, Field(ge=1, le=10_000, description="Default: whole nodes.")] | None = (
        None
    )
    weeks: Annotated[
        StrictInteger, Field(ge=1, le=MAX_RESERVATION_WEEKS, description="Number of weekly repetitions.")
    ] = 1
    reason: Annotated[SingleLine, StringConstraints(max_length=128)] | None = None


class OccurrenceResponse(BaseModel):
    starts_at: datetime
    ends_at: datetime


class ReservationResponse(BaseModel):
    name: str
    project: str | None = Field(description="Null: maintenance.")
    nodes: list[str]
    gpus_per_node: int | None = Field(description="Null: whole nodes.")
    starts_at: datetime
    ends_at: datetime
    weeks: int
    reason: str
    time_zone: str = Field(description="The time of day repeats weekly in this zone.")
    next: OccurrenceResponse | None = Field(description="Current or next period; null: it has ended.")

    @classmethod
    def of(cls, one: Reservation, now: datetime) -> "ReservationResponse":
        upcoming = next(one.occurrences(now), None)
        fields: dict[str, Any] = {name: getattr(one, name) for name in cls.model_fields if name != "next"}
        period = OccurrenceResponse(starts_at=upcoming[0], ends_at=upcoming[1]) if upcoming else None
        return cls(**fields, next=period)


class RunningJobResponse(BaseModel):
    id: int
    user: str
    nodes: list[str]
    ends_at: datetime | None = Field(description="By its time limit; null: it has none, or may exceed it.")


class CreatedReservationResponse(ReservationResponse):
    running_jobs: list[RunningJobResponse] = Field(
        description="Running jobs of others on its nodes that may still run when it begins. They are not stopped."
    )


@router.get("/reservations", summary="List reservations by their next start")
def list_reservations(
    caller: CallerDep, context: ContextDep, past: bool = False
) -> ListResponse[ReservationResponse]:
    now = context.now()
    found = services.list_reservations(context, caller, past=past)
    return ListResponse(items=[ReservationResponse.of(one, now) for one in found])


@router.post("/reservations", status_code=201, summary="Reserve nodes for a project or for maintenance")
def create_reservation(
    body: ReservationBody, caller: CallerDep, context: ContextDep
) -> CreatedReservationResponse:
    """Running jobs are not stopped: those that may still run when it begins are in the response."""
    reservation = Reservation(
        name=body.name,
        nodes=tuple(body.nodes),
        starts_at=body.starts_at,
        ends_at=body.ends_at,
        project=body.project,
        gpus_per_node=body.gpus_per_node,
        weeks=body.weeks,
        reason=body.reason or "",
    )
    created = services.create_reservation(context, caller, reservation)
    jobs = [RunningJobResponse(**asdict(job)) for job in services.find_jobs_running_into(context, created)]
    return CreatedReservationResponse(
        **ReservationResponse.of(created, context.now()).model_dump(), running_jobs=jobs
    )


@router.delete("/reservations/{name}", status_code=204, summary="Delete a reservation")
def delete_reservation(name: str, caller: CallerDep, context: ContextDep) -> None:
    services.delete_reservation(context, caller, name)
