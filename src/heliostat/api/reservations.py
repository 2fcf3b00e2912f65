"""Endpoints of reservations of nodes."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.request_schemas import SingleLine
from heliostat.models import Reservation
from heliostat.services.cluster import reservations as services

router = BodyRouter(tags=["cluster"])
_MAX_TIME_LENGTH = 40  # characters


def _aware(value: object) -> datetime:
    """Requires a time zone, so that a time is unambiguous for all users."""
    if not isinstance(value, str) or len(value) > _MAX_TIME_LENGTH:
        raise ValueError("must be a time as text: 2026-12-03T09:00:00+01:00")
    try:
        at = datetime.fromisoformat(value)
    except ValueError:
        raise ValueError("is not a time in ISO 8601; write 2026-12-03T09:00:00+01:00") from None
    if at.tzinfo is None:
        raise ValueError("has no time zone; write 2026-12-03T09:00:00+01:00, or Z at its end for UTC")
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is too far away") from None


ZonedTime = Annotated[
    datetime,
    BeforeValidator(_aware, json_schema_input_type=str),
    Field(description="ISO 8601 with a time zone."),
]
StrictInteger = Annotated[int, Field(strict=True)]
NodeName = Annotated[str, StringConstraints(min_length=1, max_length=128, strict=True)]


class ReservationBody(RequestBody):
    """Nodes or GPUs to reserve. Without a project the reservation is for maintenance: no jobs run."""

    name: Annotated[str, StringConstraints(max_length=200, strict=True)]
    nodes: Annotated[list[NodeName], Entries(10_000, minimum=1)]
    starts_at: ZonedTime
    ends_at: ZonedTime
    project: Annotated[str, StringConstraints(max_length=200, strict=True)] | None = None
    gpus_per_node: Annotated[StrictInteger, Field(ge=1, le=10_000, description="Default: whole nodes.")] | None = (
        None
    )
    weeks: Annotated[
        StrictInteger, Field(ge=1, le=services.MAX_WEEKS, description="Number of weekly repetitions.")
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
