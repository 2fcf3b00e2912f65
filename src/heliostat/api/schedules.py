"""Schedules over HTTP."""

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Query
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StringConstraints

from heliostat.api.account_schemas import ListResponse
from heliostat.api.chronos import create_or_replace_schedule
from heliostat.api.chronos_documents import document_to_schedule_request
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.request_schemas import JobBody, Json
from heliostat.api.serialization import serialize_time
from heliostat.errors import Invalid
from heliostat.models import Caller
from heliostat.models.quantities import parse_duration
from heliostat.models.schedules import CatchUpMode, Firing, OverlapPolicy, Schedule, ScheduleOrigin
from heliostat.services.context import Context
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.requests import ScheduleRequest
from heliostat.web.job_form.job_body import request_to_body


def _seconds(value: object) -> object:
    return parse_duration(value) if isinstance(value, str) and len(value) <= 40 else value


router = APIRouter(tags=["schedules"])
HIDDEN_VALUE = "(hidden)"
PREVIEW_TIMES = 10
StrictInteger = Annotated[int, Field(strict=True)]
ShortText = Annotated[str, StringConstraints(min_length=1, max_length=200, strict=True)]
DurationSeconds = Annotated[StrictInteger, BeforeValidator(_seconds), Field(ge=1, le=366 * 86400)]
ScheduleReference = Annotated[str, Path(max_length=200, description="Its number, or the name of one of yours.")]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]


class ScheduleChangeBody(BaseModel):
    """Only the fields that are given change."""

    model_config = ConfigDict(extra="forbid")

    name: ShortText | None = None
    schedule: ShortText | None = Field(
        default=None,
        description="R/2026-07-22T12:00:00Z/PT24H, R5//P1M, 0 9 * * 1-5, @daily; null: after parents.",
    )
    time_zone: ShortText | None = Field(
        default=None, description="Europe/Berlin; left out: UTC if the start says Z."
    )
    job: JobBody | None = None
    overlap: OverlapPolicy = Field(
        default=OverlapPolicy.SKIP, description="While an earlier job of it is not over."
    )
    catch_up: CatchUpMode = Field(
        default=CatchUpMode.LAST, description="What is made up for after nobody was there."
    )
    epsilon: DurationSeconds | None = Field(
        default=None, description="How late is too late for that: 30m, or seconds."
    )
    retries: Annotated[StrictInteger, Field(ge=0, le=100)] = Field(default=0, description="Of a job that failed.")
    ends_after: Annotated[StrictInteger, Field(ge=1, le=10**9)] | None = Field(
        default=None, description="Firings."
    )
    soft_error: StrictBool = Field(default=False, description="Its children fire also after it has failed.")
    parents: Annotated[list[ShortText], Field(max_length=1000)] = Field(
        default=[], description="Schedules of yours: it fires when all have succeeded since it fired last."
    )
    paused: StrictBool = False

    def to_changes(self) -> dict[str, Any]:
        """What was given, as a wish has it."""
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name, ours in (("schedule", "timing"), ("time_zone", "zone"), ("epsilon", "epsilon_seconds")):
            if name in given:
                given[ours] = given.pop(name)
        if isinstance(body := given.pop("job", None), JobBody):
            given["request"] = body.to_request()
        if "parents" in given:
            given["parents"] = tuple(given["parents"])
        if given.get("name", "") is None:
            raise Invalid(
                "name: must not be null.", "Leave it out to keep it.", fields={"name": "must not be null"}
            )
        return given


class ScheduleBody(ScheduleChangeBody):
    """A schedule to make."""

    name: ShortText
    job: JobBody

    def to_schedule_request(self) -> ScheduleRequest:
        return ScheduleRequest(**self.to_changes())


class SchedulePreviewBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    schedule: ShortText
    time_zone: ShortText | None = None
    count: Annotated[StrictInteger, Field(ge=1, le=100)] = PREVIEW_TIMES


@router.get("/schedules", summary="Your schedules, by name")
def list_schedules(
    caller: CallerDep,
    context: ContextDep,
    all_users: Annotated[bool, Query(alias="all", description="Also of projects you manage.")] = False,
) -> ListResponse[Json]:
    found = services.list_schedules(context, caller, all_users=all_users)
    return ListResponse(items=[serialize_schedule(one) for one in found])


@router.post("/schedules", status_code=201, summary="Make a schedule")
def create_schedule(body: ScheduleBody, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(
        context, caller, services.create_schedule(context, caller, body.to_schedule_request())
    )


@router.post("/schedules/preview", summary="When such a schedule would fire; stores nothing")
def preview_schedule(body: SchedulePreviewBody, caller: CallerDep, context: ContextDep) -> Json:
    times = services.preview_times(context, caller, body.schedule, body.time_zone, body.count)
    return {"times": [serialize_time(at) for at in times]}


@router.post("/schedules/chronos", status_code=201, summary="Make or replace a schedule as Chronos writes it")
def import_chronos_schedule(document: dict[str, Any], caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(
        context,
        caller,
        create_or_replace_schedule(context, caller, document_to_schedule_request(document, caller.user.unix_user)),
    )


@router.get("/schedules/{reference}", summary="One schedule, with its job and its next times")
def show_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.get_schedule(context, caller, reference))


@router.patch("/schedules/{reference}", summary="Change a schedule of yours")
def edit_schedule(
    reference: ScheduleReference, body: ScheduleChangeBody, caller: CallerDep, context: ContextDep
) -> Json:
    return serialize_schedule_detail(
        context, caller, services.edit_schedule(context, caller, reference, body.to_changes())
    )


@router.delete("/schedules/{reference}", status_code=204, summary="Remove a schedule; its jobs stay")
def remove_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> None:
    services.remove_schedule(context, caller, reference)


@router.post("/schedules/{reference}/pause", summary="Fire no more until it is resumed")
def pause_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.pause_schedule(context, caller, reference))


@router.post("/schedules/{reference}/resume", summary="Fire again, from now on")
def resume_schedule(reference: ScheduleReference, caller: CallerDep, context: ContextDep) -> Json:
    return serialize_schedule_detail(context, caller, services.resume_schedule(context, caller, reference))


@router.post("/schedules/{reference}/run", status_code=201, summary="Fire once now")
def run_schedule(
    reference: ScheduleReference, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Json:
    return serialize_firing(services.run_schedule(context, caller, reference, idempotency_key))


@router.get("/schedules/{reference}/firings", summary="The times it was due, newest first")
def list_firings(
    reference: ScheduleReference,
    caller: CallerDep,
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> ListResponse[Json]:
    schedule = services.get_schedule(context, caller, reference)
    return ListResponse(items=[serialize_firing(one) for one in services.list_firings(context, schedule, limit)])


def serialize_schedule(one: Schedule) -> Json:
    return {
        "id": one.id,
        "name": one.name,
        "user": one.user,
        "project": one.project,
        "state": one.state.value,
        "schedule": one.timing,
        "time_zone": one.zone,
        "parents": list(one.parents),
        "overlap": one.overlap.value,
        "catch_up": one.catch_up.value,
        "epsilon_seconds": one.epsilon_seconds,
        "retries": one.retries,
        "ends_after": one.ends_after,
        "soft_error": one.soft_error,
        "created_at": serialize_time(one.created_at),
        "next_at": serialize_time(one.next_at),
        "last_due_at": serialize_time(one.last_due_at),
        "fired": one.fired,
        "succeeded": one.succeeded,
        "failed": one.failed,
        "failed_in_a_row": one.failed_in_a_row,
        "succeeded_at": serialize_time(one.succeeded_at),
        "failed_at": serialize_time(one.failed_at),
    }


def serialize_schedule_detail(context: Context, caller: Caller, one: Schedule) -> Json:
    """With its job; values of variables are their owner's."""
    job = request_to_body(one.request)
    if one.user != caller.user.name and "env" in job:
        job["env"] = dict.fromkeys(job["env"], HIDDEN_VALUE)
    times = [serialize_time(at) for at in services.next_times(context, one, PREVIEW_TIMES)]
    return {**serialize_schedule(one), "job": job, "next_times": times}


def serialize_schedule_origin(one: ScheduleOrigin | None) -> Json | None:
    return None if one is None else {"id": one.schedule_id, "name": one.name, "due_at": serialize_time(one.due_at)}


def serialize_firing(one: Firing) -> Json:
    return {
        "due_at": serialize_time(one.due_at),
        "at": serialize_time(one.at),
        "state": one.state.value,
        "reason": one.reason,
        "job_id": one.job_id,
        "last_job_id": one.last_job_id,
        "tries": one.tries,
        "count": one.count,
        "by_hand": one.by_hand,
        "ended_at": serialize_time(one.ended_at),
    }
