"""Endpoints of schedules: create, list, edit, pause, resume, run, preview, firings."""

from typing import Annotated, Any

from fastapi import Header, Path, Query
from pydantic import BeforeValidator, Field, StrictBool, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.chronos.documents import ChronosBody, document_to_schedule_request
from heliostat.api.chronos.endpoints import create_or_replace_schedule
from heliostat.api.job_schemas import JobBody
from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import Json, serialize_time
from heliostat.api.validation_errors import JOB_FIELDS_HINT
from heliostat.errors import Invalid
from heliostat.models import Caller
from heliostat.models.quantities import parse_duration
from heliostat.models.schedules import CatchUpMode, Firing, OverlapPolicy, Schedule, ScheduleOrigin
from heliostat.services.context import Context
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.schedule_requests import ScheduleRequest
from heliostat.web.job_form.request_to_body import request_to_body


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) and len(value) <= 40 else value


router = BodyRouter(tags=["schedules"])
HIDDEN_VALUE = "(hidden)"
PREVIEW_TIMES = 10
StrictInteger = Annotated[int, Field(strict=True)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200, strict=True)]
DurationSeconds = Annotated[StrictInteger, Field(ge=1, le=366 * 86400), BeforeValidator(_seconds)]
ScheduleReference = Annotated[
    str, Path(max_length=200, description="Its id, or the name of one of your schedules.")
]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class ScheduleChangeBody(RequestBody):
    """Only given fields change."""

    name: ShortText | None = None
    schedule: ShortText | None = Field(
        default=None,
        description="R/2026-07-22T12:00:00Z/PT24H, R5//P1M, 0 9 * * 1-5, @daily; null: fires after its parents.",
    )
    time_zone: ShortText | None = Field(
        default=None, description="Time zone of the schedule, such as Europe/Berlin; UTC if the start ends in Z."
    )
    job: JobBody | None = None
    overlap: OverlapPolicy = Field(
        default=OverlapPolicy.SKIP, description="What happens if its previous job is still active."
    )
    catch_up: CatchUpMode = Field(
        default=CatchUpMode.LAST, description="Firings missed while the server was down that are repeated."
    )
    epsilon: DurationSeconds | None = Field(
        default=None, description="Skip missed firings that are later than this: 30m, or seconds."
    )
    retries: Annotated[StrictInteger, Field(ge=0, le=100)] = Field(
        default=0, description="Retries of a failed job."
    )
    ends_after: Annotated[StrictInteger, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="Number of firings after which it ends."
    )
    soft_error: StrictBool = Field(default=False, description="Its children also fire after it failed.")
    parents: Annotated[list[ShortText], Entries(1000)] = Field(
        default=[], description="Your schedules: it fires when all have succeeded since its last firing."
    )
    paused: StrictBool = False

    def to_changes(self) -> dict[str, Any]:
        """The given fields, with the names of a ScheduleRequest."""
        changes = {name: getattr(self, name) for name in self.model_fields_set}
        for field, attribute in (("schedule", "timing"), ("time_zone", "zone"), ("epsilon", "epsilon_seconds")):
            if field in changes:
                changes[attribute] = changes.pop(field)
        if isinstance(body := changes.pop("job", None), JobBody):
            changes["request"] = body.to_request()
        if "parents" in changes:
            changes["parents"] = tuple(changes["parents"])
        if changes.get("name", "") is None:
            raise Invalid(
                "name: must not be null.", "Omit it to keep its value.", fields={"name": "must not be null"}
            )
        return changes


class ScheduleBody(ScheduleChangeBody):
    """A schedule to create."""

    fields_hint = JOB_FIELDS_HINT

    name: ShortText
    job: JobBody

    def to_schedule_request(self) -> ScheduleRequest:
        return ScheduleRequest(**self.to_changes())


class SchedulePreviewBody(RequestBody):
    schedule: ShortText
    time_zone: ShortText | None = None
    count: Annotated[StrictInteger, Field(ge=1, le=100)] = PREVIEW_TIMES


@router.get("/schedules", summary="List your schedules, by name")
def list_schedules(
    caller: CallerDep,
    context: ContextDep,
    all_users: Annotated[bool, Query(alias="all", description="Include projects you manage.")] = False,
) -> ListResponse[Json]:
    schedules = services.list_schedules(context, caller, all_users=all_users)
    return ListResponse(items=[serialize_schedule(schedule) for schedule in schedules])


@router.post("/schedules", status_code=201, summary="Create a schedule")
def create_schedule(body: ScheduleBody, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(
        context, caller, services.create_schedule(context, caller, body.to_schedule_request())
    )


@router.post("/schedules/preview", summary="List the next firings of a schedule without storing it")
def preview_schedule(body: SchedulePreviewBody, caller: CallerDep, context: ContextDep) -> Json:
    preview = services.preview_timing(context, caller, body.schedule, body.time_zone, body.count)
    return {"times": [serialize_time(at) for at in preview.times], "time_zone": preview.zone}


@router.post("/schedules/chronos", status_code=201, summary="Create or replace a schedule from a Chronos document")
def import_chronos_schedule(body: ChronosBody, caller: CallerDep, context: ContextDep) -> Json:
    desired = document_to_schedule_request(body.root, caller.user.unix_user)
    return serialize_schedule_detail(context, caller, create_or_replace_schedule(context, caller, desired))


@router.get("/schedules/{reference}", summary="Show a schedule, its job and its next firings")
def show_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.get_schedule(context, caller, reference))


@router.patch("/schedules/{reference}", summary="Change one of your schedules")
def edit_schedule(
    reference: ScheduleReference, body: ScheduleChangeBody, caller: CallerDep, context: ContextDep
) -> Json:
    return serialize_schedule_detail(
        context, caller, services.edit_schedule(context, caller, reference, body.to_changes())
    )


@router.delete("/schedules/{reference}", status_code=204, summary="Remove a schedule; its jobs stay")
def remove_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> None:
    services.remove_schedule(context, caller, reference)


@router.post("/schedules/{reference}/pause", summary="Pause a schedule until it is resumed")
def pause_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.pause_schedule(context, caller, reference))


@router.post("/schedules/{reference}/resume", summary="Resume a schedule from now on")
def resume_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.resume_schedule(context, caller, reference))


@router.post("/schedules/{reference}/run", status_code=201, summary="Run the job of a schedule now, once")
def run_schedule(
    reference: ScheduleReference, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Json:
    return serialize_firing(services.run_schedule(context, caller, reference, idempotency_key))


@router.get("/schedules/{reference}/firings", summary="List the firings of a schedule, newest first")
def list_firings(
    reference: ScheduleReference,
    caller: CallerDep,
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> ListResponse[Json]:
    schedule = services.get_schedule(context, caller, reference)
    firings = services.list_firings(context, schedule, limit)
    return ListResponse(items=[serialize_firing(firing) for firing in firings])


def serialize_schedule(schedule: Schedule) -> Json:
    return {
        "id": schedule.id,
        "name": schedule.name,
        "user": schedule.user,
        "project": schedule.project,
        "state": schedule.state.value,
        "schedule": schedule.timing,
        "time_zone": schedule.zone,
        "parents": list(schedule.parents),
        "overlap": schedule.overlap.value,
        "catch_up": schedule.catch_up.value,
        "epsilon_seconds": schedule.epsilon_seconds,
        "retries": schedule.retries,
        "ends_after": schedule.ends_after,
        "soft_error": schedule.soft_error,
        "created_at": serialize_time(schedule.created_at),
        "next_at": serialize_time(schedule.next_at),
        "last_due_at": serialize_time(schedule.last_due_at),
        "fired": schedule.fired,
        "succeeded": schedule.succeeded,
        "failed": schedule.failed,
        "failed_in_a_row": schedule.failed_in_a_row,
        "succeeded_at": serialize_time(schedule.succeeded_at),
        "failed_at": serialize_time(schedule.failed_at),
    }


def serialize_schedule_detail(context: Context, caller: Caller, schedule: Schedule) -> Json:
    """With its job. Values of environment variables are hidden from other users."""
    job = request_to_body(schedule.request)
    if schedule.user != caller.user.name and "env" in job:
        job["env"] = dict.fromkeys(job["env"], HIDDEN_VALUE)
    times = [serialize_time(at) for at in services.next_times(context, schedule, PREVIEW_TIMES)]
    return {**serialize_schedule(schedule), "job": job, "next_times": times}


def serialize_schedule_origin(origin: ScheduleOrigin | None) -> Json | None:
    return (
        None
        if origin is None
        else {"id": origin.schedule_id, "name": origin.name, "due_at": serialize_time(origin.due_at)}
    )


def serialize_firing(firing: Firing) -> Json:
    return {
        "due_at": serialize_time(firing.due_at),
        "at": serialize_time(firing.at),
        "state": firing.state.value,
        "reason": firing.reason,
        "job_id": firing.job_id,
        "last_job_id": firing.last_job_id,
        "tries": firing.tries,
        "count": firing.count,
        "by_hand": firing.by_hand,
        "ended_at": serialize_time(firing.ended_at),
    }
