"""The ASGI application: routes, errors, and nothing else."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import BaseRoute

from heliostat import __version__
from heliostat.api import (
    accounts,
    announcements,
    chronos,
    environments,
    event_streams,
    exec_command,
    history,
    images,
    job_files,
    jobs,
    nodes,
    notebooks,
    notifications,
    provenance,
    queue,
    reports,
    reservations,
    schedules,
    services,
    sessions,
    slurm_accounts,
    stats,
    sweeps,
    uploads,
    workflows,
)
from heliostat.api.event_feed import EventFeed
from heliostat.api.event_streams import FolderWatcher
from heliostat.api.middleware import BodyLimitMiddleware, ServerTimingMiddleware
from heliostat.api.request_schemas import ErrorResponse
from heliostat.api.validation import AsciiJSONResponse, read_job, validation_error
from heliostat.errors import BadRequest, HeliostatError, NotFound, StoreUnavailable
from heliostat.server_log import get_logger
from heliostat.services.context import Context
from heliostat.services.jobs.uploads import parse_size_bytes
from heliostat.web import error_pages, request_context, routes

log = get_logger()
API_PREFIX = "/api/v1"


_MODULES = (
    jobs,
    event_streams,
    queue,
    nodes,
    accounts,
    reservations,
    reports,
    history,
    stats,
    announcements,
    slurm_accounts,
    exec_command,
    uploads,
    provenance,
    environments,
    images,
    schedules,
    notifications,
    workflows,
    sweeps,
    sessions,
    notebooks,
    job_files,
    services,
)


def create_app(context: Context, facts: dict[str, Any]) -> FastAPI:
    """`facts` are what `/status` tells of the server process."""
    app = FastAPI(
        title="Heliostat",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=f"{API_PREFIX}/openapi.json",
    )
    app.state.context = context
    app.state.facts = facts
    app.state.feed = EventFeed(context.store)
    app.state.folder_watch = FolderWatcher()
    app.state.read_job = read_job  # for the web, which stands below
    app.router.routes.extend(all_routes())
    routes.install_web(app, context)
    app.add_exception_handler(HeliostatError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(
        BodyLimitMiddleware,
        limit_bytes=context.settings.server.max_request_bytes,
        tell=_told,
        is_known=_is_known,
        stream_limits={
            API_PREFIX + uploads.STREAM_PATH: lambda: (
                2 * parse_size_bytes(context.settings.storage.upload_max_size)
            )
        },
    )
    app.add_middleware(ServerTimingMiddleware)
    return app


@functools.cache
def all_routes() -> tuple[BaseRoute, ...]:
    """Of the API and of the web, the same for every application of a process.

    FastAPI works out what a route takes and gives when the first request comes by, half a second for all of them.
    """
    made = APIRouter(responses={"4XX": {"model": ErrorResponse}})
    for module in _MODULES:
        made.include_router(module.router, prefix=API_PREFIX)
    _include_chronos(made)
    routes.include_page_routers(made)
    return tuple(made.routes)


def _include_chronos(made: APIRouter) -> None:
    """As newer and as older ones had it."""
    for prefix in ("/v1", ""):
        made.include_router(chronos.router, prefix=f"{prefix}/scheduler", include_in_schema=False)
        made.include_router(chronos.leader_router, prefix=prefix, include_in_schema=False)


@contextlib.asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    app.state.feed.attach(loop)
    app.state.live.attach(loop)
    app.state.folder_watch.attach(loop)
    yield
    app.state.feed.detach()
    app.state.live.detach()
    app.state.folder_watch.detach(loop)


def _is_known(request: Request) -> bool:
    """By a token, or where none is shown, by the cookie of a browser."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        return request_context.is_logged_in(request)
    context: Context = request.app.state.context
    try:
        context.identities.authenticate_token(token.strip())
    except HeliostatError:
        return False
    return True


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeliostatError)  # noqa: S101 - registered for this class only
    headers = (
        {"WWW-Authenticate": "Bearer"} if error.status == 401 and not error_pages.is_web_request(request) else {}
    )
    if isinstance(error, StoreUnavailable):
        log.error("store_unavailable", error=error.message)
        headers["Retry-After"] = "5"
    return await _told(request, error, error.status, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems = error.errors()
    hint = f"The fields are described at {API_PREFIX}/openapi.json."
    if any(problem["type"] == "json_invalid" for problem in problems):
        where = problems[0].get("ctx", {}).get("error", "")
        raised: HeliostatError = BadRequest(f"The body is not JSON: {where}.", "Send a JSON object.")
    elif any(problem["loc"] == ("body",) and problem["type"] in _NO_OBJECT for problem in problems):
        raised = BadRequest(
            "The body is not a JSON object.", f"Send one, with Content-Type: application/json. {hint}"
        )
    else:
        # The first word of a place says whether it is in the body, the path…
        raised = validation_error([{**problem, "loc": problem["loc"][1:]} for problem in problems], hint)
    return await _told(request, raised, raised.status)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    raised: HeliostatError
    hint = (
        "Go back to the first page." if error_pages.is_web_request(request) else f"See {API_PREFIX}/openapi.json."
    )
    if error.status_code == 404:
        raised = NotFound(f"There is nothing at {request.url.path[:200]}.", hint)
    elif error.status_code == 405:
        raised = BadRequest(f"{request.method} is not possible here.", hint)
    else:
        raised = BadRequest("The body cannot be read.", "Send a JSON object in UTF-8, not nested too deeply.")
    return await _told(request, raised, error.status_code, error.headers)


async def _unexpected(request: Request, error: Exception) -> Response:
    log.error("unexpected_error", path=request.url.path, exc_info=error)
    raised = HeliostatError("Something went wrong inside Heliostat.", "An admin finds the details in server.log.")
    return await _told(request, raised, 500)


async def _told(
    request: Request, error: HeliostatError, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """As JSON, and where people look as a page."""
    if chronos.is_chronos_path(request.url.path):
        return chronos.chronos_error_response(error, status, headers)
    if not error_pages.is_web_request(request):
        return AsciiJSONResponse(error.as_dict(), status, headers)
    page = await run_in_threadpool(error_pages.render_error_page, request, error, status)
    page.headers.update(headers or {})
    return page


_NO_OBJECT = {"model_attributes_type", "model_type", "missing"}
