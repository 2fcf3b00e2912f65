"""The API of Chronos, for what was written for it: `/v1/scheduler/…`, and without `/v1` as older ones had it.

Names are those of one's own schedules: several people who do not know each other may use the same.
"""

import base64
import binascii
from collections.abc import Callable, Coroutine, Mapping
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Path, Query
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from heliostat.api import chronos_stats as stats
from heliostat.api.chronos_documents import document_to_schedule_request, schedule_to_document
from heliostat.api.request_context import ContextDep, client_address, current_caller, get_context
from heliostat.api.validation import AsciiJSONResponse
from heliostat.errors import BadRequest, Conflict, Forbidden, HeliostatError, NotAuthenticated, NotFound
from heliostat.models import Caller
from heliostat.models.schedules import Schedule
from heliostat.services.context import Context
from heliostat.services.jobs.control import cancel_jobs
from heliostat.services.schedules import lifecycle as services
from heliostat.services.schedules.firing_results import record_manual_success
from heliostat.services.schedules.requests import ScheduleRequest

_TOKEN = "helio_"  # noqa: S105 - how every token begins
_BAD = (BadRequest, NotFound, Conflict)
_LOGIN = {"WWW-Authenticate": 'Basic realm="Heliostat", charset="UTF-8"'}


class ChronosRoute(APIRoute):
    """Errors as Chronos tells them: 400 and a message."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handler(request: Request) -> Response:
            try:
                _check_origin(request)
                return await handle(request)
            except RequestValidationError:
                return _told(BadRequest("The request cannot be read.", "Send one JSON object."))
            except HeliostatError as error:
                return _told(error)

        return handler


async def current_chronos_caller(request: Request) -> Caller:
    """As everywhere; and in Basic a token may stand for the password."""
    scheme, _, proof = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "basic":
        name, _, secret = _decoded(proof).partition(":")
        if secret.startswith(_TOKEN):
            user = get_context(request).identities.authenticate_token(secret)
            if name and name != user.name:
                raise NotAuthenticated("The token belongs to somebody else.", "Use your own name with it.")
            return Caller(user, "token", client_address(request))
    return await current_caller(request)


ChronosCallerDep = Annotated[Caller, Depends(current_chronos_caller)]
ChronosJobName = Annotated[str, Path(max_length=200)]
DocumentBody = Annotated[dict[str, Any], Body()]
SearchTerm = Annotated[str, Query(max_length=200)]

router = APIRouter(tags=["chronos"], route_class=ChronosRoute)
leader_router = APIRouter(tags=["chronos"], route_class=ChronosRoute)


@leader_router.get("/leader", summary="Who answers: this server")
def show_leader(request: Request, caller: ChronosCallerDep) -> Response:
    return JSONResponse({"leader": request.headers.get("host", "")})


@router.post("/iso8601", status_code=204, summary="Add a job with a schedule, or replace it")
@router.post("/dependency", status_code=204, summary="Add a job with parents, or replace it")
def add_job(document: DocumentBody, caller: ChronosCallerDep, context: ContextDep) -> Response:
    create_or_replace_schedule(context, caller, document_to_schedule_request(document, caller.user.unix_user))
    return Response(status_code=204)


@router.put("/iso8601", status_code=204, summary="Replace a job with a schedule")
@router.put("/dependency", status_code=204, summary="Replace a job with parents")
def replace_job(document: DocumentBody, caller: ChronosCallerDep, context: ContextDep) -> Response:
    wish = document_to_schedule_request(document, caller.user.unix_user)
    _own(context, caller, wish.name)
    create_or_replace_schedule(context, caller, wish)
    return Response(status_code=204)


@router.get("/jobs", summary="All your jobs, as Chronos lists them")
def list_jobs(caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(_documents(services.list_schedules(context, caller)))


@router.get("/jobs/search", summary="Those whose name or command contains this")
def search_jobs(
    caller: ChronosCallerDep,
    context: ContextDep,
    name: SearchTerm = "",
    command: SearchTerm = "",
    any_of: Annotated[str, Query(alias="any", max_length=200)] = "",
    limit: Annotated[int, Query(ge=0, le=10_000)] = 10,
    offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
) -> Response:
    def fits(job: dict[str, Any]) -> bool:
        texts = job["name"].lower(), str(job["command"]).lower()
        wanted = any_of.lower()
        by_field = name.lower() in texts[0] and command.lower() in texts[1]
        if wanted and not (name or command):
            return any(wanted in text for text in texts)
        return by_field or bool(wanted and any(wanted in text for text in texts))

    found = [job for job in _documents(services.list_schedules(context, caller)) if fits(job)]
    return JSONResponse(found[offset : offset + limit])


@router.get("/job/stat/{name}", summary="How long it took, and its last runs")
def show_job_stats(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(stats.schedule_statistics(context, _own(context, caller, name)))


@router.put("/job/success/{name}", summary="Count it as successful, and let those after it run")
def mark_successful(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    marked = record_manual_success(context, _own(context, caller, name))
    return PlainTextResponse(f"marked job {name} as successful: {str(marked).lower()}")


@router.get("/job/{name}", summary="One of your jobs")
def show_job(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    found = services.list_schedules(context, caller)
    one = _own(context, caller, name)
    return JSONResponse(schedule_to_document(one, {other.id: other.name for other in found}))


@router.put("/job/{name}", status_code=204, summary="Run it once now")
def run_job(
    name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep, arguments: SearchTerm = ""
) -> Response:
    if arguments:
        raise BadRequest("Arguments for one run are not possible here.", "Change the job, or add a second one.")
    services.run_schedule(context, caller, str(_own(context, caller, name).id))
    return Response(status_code=204)


@router.delete("/job/{name}", status_code=204, summary="Remove it")
def delete_job(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    services.remove_schedule(context, caller, str(_own(context, caller, name).id))
    return Response(status_code=204)


@router.delete("/task/kill/{name}", status_code=204, summary="Cancel what runs of it")
def kill_tasks(name: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    if jobs := stats.list_unfinished_jobs(context, _own(context, caller, name)):
        cancel_jobs(context, caller, jobs)
    return Response(status_code=204)


@router.get("/graph/dot", summary="Who follows whom, for Graphviz")
def graph_dot(caller: ChronosCallerDep, context: ContextDep) -> Response:
    return PlainTextResponse(stats.dependency_graph_dot(services.list_schedules(context, caller)))


@router.get("/graph/csv", summary="The same as lines")
def graph_csv(caller: ChronosCallerDep, context: ContextDep) -> Response:
    found = services.list_schedules(context, caller)
    return PlainTextResponse(
        stats.dependency_graph_csv(found, {one.id: stats.schedule_run_state(context, one) for one in found})
    )


@router.get("/stats/{which}", summary="How long each took: mean, median, 75thPercentile…")
def show_all_stats(which: ChronosJobName, caller: ChronosCallerDep, context: ContextDep) -> Response:
    return JSONResponse(stats.rank_by_duration(context, services.list_schedules(context, caller), which))


def create_or_replace_schedule(context: Context, caller: Caller, wish: ScheduleRequest) -> Schedule:
    """Made, or if there is one of that name, replaced."""
    known = next((one for one in services.list_schedules(context, caller) if one.name == wish.name), None)
    if known is None:
        return services.create_schedule(context, caller, wish)
    changes = {name: getattr(wish, name) for name in ScheduleRequest.__dataclass_fields__}
    return services.edit_schedule(context, caller, str(known.id), changes)


def _documents(found: list[Schedule]) -> list[dict[str, Any]]:
    names = {one.id: one.name for one in found}
    return [schedule_to_document(one, names) for one in found]


def _own(context: Context, caller: Caller, name: str) -> Schedule:
    found = next((one for one in services.list_schedules(context, caller) if one.name == name), None)
    if found is None:
        raise NotFound(f"Job {name[:64]!a} not found.", "See /v1/scheduler/jobs.")
    return found


def _decoded(proof: str) -> str:
    try:
        return base64.b64decode(proof, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def _check_origin(request: Request) -> None:
    """A browser that remembers a login sends it from any site: nothing is done for other sites."""
    if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        raise Forbidden("This request came from another site.", "Use a program, or the web pages.")


def is_chronos_path(path: str) -> bool:
    """Where whatever goes wrong, inside of a route or before it, is told as Chronos tells it."""
    return path.removeprefix("/v1").startswith(("/scheduler/", "/leader"))


def chronos_error_response(
    error: HeliostatError, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    message = " ".join(part for part in (error.message, error.hint) if part)
    return AsciiJSONResponse({"message": message, "status": HTTPStatus(status).phrase}, status, headers)


def _told(error: HeliostatError) -> Response:
    status = 400 if isinstance(error, _BAD) else error.status
    return chronos_error_response(error, status, _LOGIN if status == 401 else None)
