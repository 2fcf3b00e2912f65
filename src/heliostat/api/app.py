"""The ASGI application: routes, errors, and nothing else."""

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from heliostat import __version__
from heliostat.api import history, jobs, nodes, people, queue, reports, reservations, stats, streams
from heliostat.api.feed import Feed
from heliostat.api.folders import FolderWatch
from heliostat.api.middleware import BodyLimit, ServerTiming
from heliostat.api.schemas import ErrorView, JobBody
from heliostat.errors import BadRequest, HeliostatError, Invalid, NotFound, StoreUnavailable
from heliostat.services.context import Context
from heliostat.web import faults, routes

log = structlog.get_logger()
PREFIX = "/api/v1"


def create_app(context: Context, facts: dict[str, Any]) -> FastAPI:
    """`facts` are what `/status` tells of the server process."""
    app = FastAPI(
        title="Heliostat",
        version=__version__,
        lifespan=_lifespan,
        docs_url=None,  # its page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=f"{PREFIX}/openapi.json",
        responses={"4XX": {"model": ErrorView}},
    )
    app.state.context = context
    app.state.facts = facts
    app.state.feed = Feed(context.store)
    app.state.folder_watch = FolderWatch()
    for module in (jobs, streams, queue, nodes, people, reservations, reports, history, stats):
        app.include_router(module.router, prefix=PREFIX)
    routes.install(app, context)
    app.add_exception_handler(HeliostatError, _ours)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)
    app.add_middleware(BodyLimit, limit_bytes=context.settings.max_request_bytes, tell=_told)
    app.add_middleware(ServerTiming)
    return app


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


async def _ours(request: Request, error: Exception) -> Response:
    assert isinstance(error, HeliostatError)  # noqa: S101 - registered for this class only
    headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 and not faults.is_for_people(request) else {}
    if isinstance(error, StoreUnavailable):
        log.error("store_unavailable", error=error.message)
        headers["Retry-After"] = "5"
    return await _told(request, error, error.status, headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101
    problems = error.errors()
    hint = f"The fields are described at {PREFIX}/openapi.json."
    if any(problem["type"] == "json_invalid" for problem in problems):
        where = problems[0].get("ctx", {}).get("error", "")
        raised: HeliostatError = BadRequest(f"The body is not JSON: {where}.", "Send a JSON object.")
    elif any(problem["loc"] == ("body",) and problem["type"] in _NO_OBJECT for problem in problems):
        raised = BadRequest(
            "The body is not a JSON object.", f"Send one, with Content-Type: application/json. {hint}"
        )
    else:
        found = [(_field(problem["loc"]), _message(problem)) for problem in problems[:20]]
        name, message = found[0]
        fields = {name: message for name, message in found if name}
        raised = Invalid(f"{name}: {message}." if name else f"{message}.", hint, fields=fields)
    return await _told(request, raised, raised.status)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101
    raised: HeliostatError
    hint = "Go back to the first page." if faults.is_for_people(request) else f"See {PREFIX}/openapi.json."
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
    if not faults.is_for_people(request):
        return JSONResponse(error.as_dict(), status, headers)
    page = await run_in_threadpool(faults.fault_page, request, error, status)
    page.headers.update(headers or {})
    return page


_NO_OBJECT = {"model_attributes_type", "model_type", "missing"}


def _field(location: tuple[Any, ...]) -> str:
    words = [str(part) for part in location[1:]]  # the first says whether it is in the body, the path…
    return _short(".".join(word for word in words if not word.startswith(("constrained-", "list[", "function-"))))


def _message(problem: dict[str, Any]) -> str:
    if problem["type"] != "extra_forbidden":
        return _plain(problem["msg"])
    near = difflib.get_close_matches(str(problem["loc"][-1])[:50], JobBody.model_fields, 1)
    return "there is no such field" + (f", perhaps {near[0]}" if near else "")


def _plain(message: str) -> str:
    return _short(message.removeprefix("Value error, ").rstrip("."))


def _short(text: str) -> str:
    """What was sent may be large and comes back in messages; and it may hold what cannot be sent back."""
    return text[:_MOST_ECHOED].encode("utf-8", "backslashreplace").decode()


_MOST_ECHOED = 300
