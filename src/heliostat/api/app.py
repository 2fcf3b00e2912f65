"""The ASGI application: all routes, middleware and error handlers."""

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Match

from heliostat import __version__
from heliostat.api import (
    accounts,
    alerts,
    announcements,
    batch_notebooks,
    environments,
    event_streams,
    exec_endpoint,
    history_import_export,
    images,
    job_comparison,
    job_files,
    jobs,
    monitoring,
    nodes,
    notifications,
    pause,
    ports,
    provenance,
    queue,
    reports,
    reruns,
    reservations,
    schedules,
    services,
    sessions,
    slurm_accounts,
    stats,
    status,
    sweeps,
    uploads,
    workflows,
)
from heliostat.api.chronos import endpoints as chronos
from heliostat.api.error_schemas import ErrorResponse
from heliostat.api.event_feed import EventFeed
from heliostat.api.event_streams import FolderWatcher
from heliostat.api.middleware import (
    REQUEST_ID_HEADER,
    BodyLimitMiddleware,
    ClientAddressMiddleware,
    RequestRecordMiddleware,
)
from heliostat.api.request_bodies import no_json_object
from heliostat.api.validation import AsciiJSONResponse, read_job
from heliostat.api.validation_errors import FIELDS_HINT, validation_error
from heliostat.errors import BadRequest, HeliostatError, NotFound, StoreUnavailable
from heliostat.server_log import get_logger
from heliostat.services.cluster.notice import notice_for_all
from heliostat.services.context import Context
from heliostat.services.jobs.uploads import parse_size_bytes
from heliostat.web import error_pages, request_context, routes

log = get_logger()
API_PREFIX = "/api/v1"
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_LARGE_BODIES = ("/jobs/bulk", "/workflows", "/sweeps", "/uploads", "/history/slurm")


_MODULES = (
    jobs,
    event_streams,
    queue,
    nodes,
    status,
    monitoring,
    pause,
    accounts,
    reservations,
    reports,
    history_import_export,
    stats,
    announcements,
    alerts,
    slurm_accounts,
    exec_endpoint,
    uploads,
    provenance,
    job_comparison,
    reruns,
    environments,
    images,
    schedules,
    notifications,
    workflows,
    sweeps,
    sessions,
    ports,
    batch_notebooks,
    job_files,
    services,
)


def create_app(context: Context, facts: dict[str, Any]) -> FastAPI:
    """`facts` are the facts of the server process that `/status` returns."""
    app = FastAPI(
        title="Heliostat",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # its page loads scripts from other sites
        redoc_url=None,
        openapi_url=None,  # it would be generated in the event loop
    )
    app.state.context = context
    app.state.facts = facts
    app.state.feed = EventFeed(context.store)
    app.state.folder_watch = FolderWatcher()
    app.state.read_job = read_job  # for the web pages, which must not import the API
    app.add_api_route(f"{API_PREFIX}/openapi.json", _describe_api, include_in_schema=False)
    app.router.routes.extend(all_routes())
    routes.install_web(app, context)
    app.add_exception_handler(HeliostatError, _heliostat_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected_error)
    app.add_middleware(
        BodyLimitMiddleware,
        limit_bytes=context.settings.server.max_request_bytes,
        error_response=_error_response,
        authenticate=_authenticated_user,
        large_paths=[API_PREFIX + path for path in _LARGE_BODIES],
        stream_limit=functools.partial(_stream_limit, context),
    )
    app.add_middleware(
        RequestRecordMiddleware,
        notice=functools.partial(notice_for_all, context),
        seconds=context.monitoring.request_seconds,
        metrics_paths=monitoring.OPEN_PATHS,
    )
    app.add_middleware(ClientAddressMiddleware, trusted_proxies=context.settings.server.trusted_proxies)
    return app


def _stream_limit(context: Context, path: str) -> int | None:
    """None: the whole body will be in memory."""
    if path == API_PREFIX + uploads.STREAM_PATH:
        return 2 * parse_size_bytes(context.settings.storage.upload_max_size)
    is_exec = path.startswith(f"{API_PREFIX}/jobs/") and path.endswith("/exec")
    return context.settings.server.max_request_bytes if is_exec else None


@functools.cache
def all_routes() -> tuple[BaseRoute, ...]:
    """Routes of the API and of the web pages, shared by all applications of a process.

    FastAPI analyses each route at its first request; for all routes that takes half a second.
    """
    router = APIRouter(responses={"4XX": {"model": ErrorResponse}})
    for module in _MODULES:
        router.include_router(module.router, prefix=API_PREFIX)
    router.include_router(monitoring.root_router)
    _include_chronos(router)
    routes.include_page_routers(router)
    return tuple(router.routes)


def _include_chronos(router: APIRouter) -> None:
    """With the path prefix of newer and of older versions of Chronos."""
    for prefix in ("/v1", ""):
        router.include_router(chronos.router, prefix=f"{prefix}/scheduler", include_in_schema=False)
        router.include_router(chronos.leader_router, prefix=prefix, include_in_schema=False)


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


def _authenticated_user(request: Request) -> str | None:
    """The user of the token, or without a token of the cookie of the browser."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        user = request_context.identify_request(request).user
        return None if user is None else user.name
    context: Context = request.app.state.context
    try:
        return context.authenticator.authenticate_token(token.strip()).name
    except HeliostatError:
        return None


def _describe_api(request: Request) -> Response:
    return JSONResponse(request.app.openapi())


async def _heliostat_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeliostatError)  # noqa: S101 - registered for this class only
    headers = (
        {"WWW-Authenticate": "Bearer"} if error.status == 401 and not error_pages.is_web_request(request) else {}
    )
    if isinstance(error, StoreUnavailable):
        log.error("store_unavailable", error=error.message)
        headers["Retry-After"] = "5"
    status = chronos.error_status(error) if chronos.is_chronos_path(request.url.path) else error.status
    return await _error_response(request, error, status, headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems = error.errors()
    raised: HeliostatError
    if any(problem["loc"] == ("body",) for problem in problems):
        raised = no_json_object()  # it is empty
    else:
        # The first part of a location is where the field is: path, query…
        raised = validation_error([{**problem, "loc": problem["loc"][1:]} for problem in problems], FIELDS_HINT)
    return await _heliostat_error(request, raised)


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    raised: HeliostatError
    hint = "Go back to the start page." if error_pages.is_web_request(request) else "See docs/api.md."
    if error.status_code == 404:
        raised = NotFound(f"The path {request.url.path[:200]} does not exist.", hint)
    elif error.status_code == 405:
        raised = BadRequest(f"The method {request.method} is not allowed for this path.", hint)
        return await _error_response(request, raised, 405, {"Allow": ", ".join(_allowed_methods(request))})
    else:
        raised = BadRequest("The body cannot be read.", "Send a JSON object in UTF-8, not nested too deeply.")
    return await _error_response(request, raised, error.status_code, error.headers)


def _allowed_methods(request: Request) -> Iterator[str]:
    """Of all routes with this path; the error names only those of the first."""
    for method in _METHODS:
        scope = {**request.scope, "method": method}
        if any(route.matches(scope)[0] is Match.FULL for route in request.app.router.routes):
            yield method


async def _unexpected_error(request: Request, error: Exception) -> Response:
    log.error("unexpected_error", path=request.url.path, exc_info=error)
    raised = HeliostatError("Internal error of the server.", "Admins find the details in server.log.")
    # Sent outside of all middleware, which cannot add this header.
    headers = {REQUEST_ID_HEADER: getattr(request.state, "request_id", "")}
    return await _error_response(request, raised, 500, headers)


async def _error_response(
    request: Request, error: HeliostatError, status: int, headers: Mapping[str, str] | None = None
) -> Response:
    """As JSON; for the web interface, as a page."""
    if chronos.is_chronos_path(request.url.path):
        return chronos.chronos_error_response(error, status, headers)
    if not error_pages.is_web_request(request):
        return AsciiJSONResponse(error.as_dict(), status, headers)
    page = await run_in_threadpool(error_pages.render_error_page, request, error, status)
    page.headers.update(headers or {})
    return page
