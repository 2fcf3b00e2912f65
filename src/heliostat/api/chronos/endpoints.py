"""Endpoints compatible with the Chronos scheduler: `/v1/scheduler/…`, and without `/v1` as in older versions.

Job names are unique per user: each caller sees only their own schedules.
"""

import base64
import binascii
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Depends, Path, Query
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from heliostat.api.chronos import graph, stats
from heliostat.api.chronos.documents import ChronosBody, document_to_schedule_request, schedule_to_document
from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import ContextDep, current_caller, token_caller
from heliostat.api.validation import AsciiJSONResponse
from heliostat.errors import BadRequest, Conflict, Forbidden, HeliostatError, NotAuthenticated, NotFound
from heliostat.models import Caller
from heliostat.models.schedules import Schedule
from heliostat.services.context import Context
from heliostat.services.jobs.control import cancel_jobs
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.firing_results import record_manual_success
from heliostat.services.schedules.schedule_requests import ScheduleRequest

_TOKEN_PREFIX = "helio_"  # noqa: S105 - not a secret
_BAD_REQUEST_ERRORS = (BadRequest, NotFound, Conflict)
_LOGIN_HEADERS = {"WWW-Authenticate": 'Basic realm="Heliostat", charset="UTF-8"'}


async def current_chronos_caller(request: Request) -> Caller:
    """As for all endpoints; additionally a token is accepted as the password of Basic authentication."""
    _check_origin(request)
    scheme, _, proof = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        name, _, secret = _decoded(proof).partition(":")
        if secret.startswith(_TOKEN_PREFIX):
            caller = token_caller(request, secret)
            if name and name != caller.user.name:
                raise NotAuthenticated("The token belongs to another user.", "Use the name of its owner.")
            return caller
    return await current_caller(request)


ChronosCallerDep = Annotated[Caller, Depends(current_chronos_caller)]
ChronosJobName = Annotated[str, Path(max_length=200)]
SearchTerm = Annotated[str, Query(max_length=200)]

router = BodyRouter(tags=["chronos"])
leader_router = BodyRouter(tags=["chronos"])


@leader_router.get("/leader", summary="Show the leader: this server")
def show_leader(request: Request, caller: ChronosCallerDep) -> Response:
    return JSONResponse({"leader": request.headers.get("host", "")})


@router.post("/iso8601", status_code=204, summary="Add a job with a schedule, or replace it")
@router.post("/dependency", status_code=204, summary="Add a job with parents, or replace it")
def add_job(body: ChronosBody, caller: ChronosCallerDep, context: ContextDep) -> Response:
    create_or_replace_schedule(context, caller, document_to_schedule_request(body.root, caller.user.unix_user))
    return Response(status_code=204)


@router.put("/iso8601", status_code=204, summary="Replace a job with a schedule")
@router.put("/dependency", status_code=204, summary="Replace a job with parents")
def replace_job(body: ChronosBody, caller: ChronosCallerDep, context: ContextDep) -> Response:
    schedule_request = document_to_schedule_request(body.root, caller.user.unix_user)
    _own_schedule(context, caller, schedule_request.name)
    create_or_replace_schedule(context, caller, schedule_request)
    return Response(status_code=204)


@router.get("/jobs", summary="List your jobs in the format of Chronos")
def list_jobs(caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(_documents(services.list_schedules(context, caller)))


@router.get("/jobs/search", summary="List jobs whose name or command contains a text")
def search_jobs(
    caller: ChronosCallerDep,
    context: ContextDep,
    name: SearchTerm = "",
    command: SearchTerm = "",
    any_of: Annotated[str, Query(alias="any", max_length=200)] = "",
    limit: Annotated[int, Query(ge=0, le=10_000)] = 10,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    def matches(job: dict[str, Any]) -> bool:
        texts = job["name"].lower(), str(job["command"]).lower()
        term = any_of.lower()
        by_field = name.lower() in texts[0] and command.lower() in texts[1]
        if term and not (name or command):
            return any(term in text for text in texts)
        return by_field or bool(term and any(term in text for text in texts))

    jobs = [job for job in _documents(services.list_schedules(context, caller)) if matches(job)]
    return JSONResponse(jobs[offset : offset + limit])


@router.get("/job/stat/{name}", summary="Show the run times and last runs of a job")
def show_job_stats(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(stats.schedule_statistics(context, _own_schedule(context, caller, name)))


@router.put("/job/success/{name}", summary="Mark a job as successful and run its children")
def mark_successful(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    marked = record_manual_success(context, _own_schedule(context, caller, name))
    return PlainTextResponse(f"marked job {name} as successful: {str(marked).lower()}")


@router.get("/job/{name}", summary="Show one of your jobs")
def show_job(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    schedules = services.list_schedules(context, caller)
    schedule = _own_schedule(context, caller, name)
    return JSONResponse(schedule_to_document(schedule, {other.id: other.name for other in schedules}))


@router.put("/job/{name}", status_code=204, summary="Run a job once now")
def run_job(
    name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep, arguments: SearchTerm = ""
) -> Response:
    if arguments:
        raise BadRequest("Arguments for a single run are not supported.", "Change the job, or add a second one.")
    services.run_schedule(context, caller, str(_own_schedule(context, caller, name).id))
    return Response(status_code=204)


@router.delete("/job/{name}", status_code=204, summary="Remove a job")
def delete_job(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    services.remove_schedule(context, caller, str(_own_schedule(context, caller, name).id))
    return Response(status_code=204)


@router.delete("/task/kill/{name}", status_code=204, summary="Cancel the running tasks of a job")
def kill_tasks(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    if jobs := stats.list_unfinished_jobs(context, _own_schedule(context, caller, name)):
        cancel_jobs(context, caller, jobs)
    return Response(status_code=204)


@router.get("/graph/dot", summary="Show the dependency graph for Graphviz")
def graph_dot(caller: ChronosCallerDep, context: ContextDep) -> Response:
    return PlainTextResponse(graph.dependency_graph_dot(services.list_schedules(context, caller)))


@router.get("/graph/csv", summary="Show the dependency graph as CSV")
def graph_csv(caller: ChronosCallerDep, context: ContextDep) -> Response:
    schedules = services.list_schedules(context, caller)
    states = {schedule.id: stats.schedule_run_state(context, schedule) for schedule in schedules}
    return PlainTextResponse(graph.dependency_graph_csv(schedules, states))


@router.get("/stats/{which}", summary="List run times of all jobs: mean, median, 75thPercentile…")
def show_all_stats(which: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(stats.rank_by_duration(context, services.list_schedules(context, caller), which))


def create_or_replace_schedule(context: Context, caller: Caller, desired: ScheduleRequest) -> Schedule:
    """Creates a schedule, or replaces the caller's schedule with that name."""
    existing = _find_own_schedule(context, caller, desired.name)
    if existing is None:
        return services.create_schedule(context, caller, desired)
    changes = {name: getattr(desired, name) for name in ScheduleRequest.__dataclass_fields__}
    return services.edit_schedule(context, caller, str(existing.id), changes)


def _documents(schedules: list[Schedule]) -> list[dict[str, Any]]:
    names = {schedule.id: schedule.name for schedule in schedules}
    return [schedule_to_document(schedule, names) for schedule in schedules]


def _own_schedule(context: Context, caller: Caller, name: str) -> Schedule:
    schedule = _find_own_schedule(context, caller, name)
    if schedule is None:
        raise NotFound(f"Job {name[:64]!a} not found.", "See /v1/scheduler/jobs.")
    return schedule


def _find_own_schedule(context: Context, caller: Caller, name: str) -> Schedule | None:
    return next((schedule for schedule in services.list_schedules(context, caller) if schedule.name == name), None)


def _decoded(proof: str) -> str:
    try:
        return base64.b64decode(proof, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def _check_origin(request: Request) -> None:
    """Rejects requests from other sites: a browser sends stored Basic logins with them."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("This request came from another site.", "Use a program, or the web interface.")


def is_chronos_path(path: str) -> bool:
    """Whether errors of this path have the format of Chronos, also those raised before its route runs."""
    return path.removeprefix("/v1").startswith(("/scheduler/", "/leader"))


def error_status(error: HeliostatError) -> int:
    return 400 if isinstance(error, _BAD_REQUEST_ERRORS) else error.status


def chronos_error_response(
    error: HeliostatError, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    message = " ".join(part for part in (error.message, error.hint) if part)
    body = {"message": message, "status": HTTPStatus(status).phrase}
    return AsciiJSONResponse(body, status, _LOGIN_HEADERS if status == 401 else headers)
