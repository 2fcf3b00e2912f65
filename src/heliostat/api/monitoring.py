"""Endpoints of monitoring: metrics, health, readiness, and targets for Prometheus."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, current_caller
from heliostat.metrics import CONTENT_TYPE
from heliostat.services.monitoring.health import find_health_problems, find_readiness_problems
from heliostat.services.monitoring.metrics_page import render_metrics
from heliostat.services.monitoring.targets import list_targets

OPEN_PATHS = ("/metrics", "/healthz", "/readyz")
"""What `monitoring.metrics_address` serves."""

router = BodyRouter(tags=["monitoring"])
root_router = APIRouter(include_in_schema=False)


async def _require_login_or_metrics_address(request: Request) -> None:
    """The server, and nothing that a client sends, says that a connection uses the metrics address."""
    if not getattr(request.state, "is_metrics_address", False):
        await current_caller(request)


@root_router.get("/metrics")
def show_metrics(
    allowed: Annotated[None, Depends(_require_login_or_metrics_address)], context: ContextDep
) -> Response:
    """Show the metrics in the text format of Prometheus. Needs a login, except at `monitoring.metrics_address`."""
    return Response(render_metrics(context), media_type=CONTENT_TYPE)


@root_router.get("/healthz")
def show_health(context: ContextDep) -> Response:
    """Show whether all threads of the server run: 200, or 503 with `problems`. Without a login."""
    return _health_response(find_health_problems(context))


@root_router.get("/readyz")
def show_readiness(context: ContextDep) -> Response:
    """Show whether jobs can be accepted and started: 200, or 503 with `problems`. Without a login."""
    return _health_response(find_readiness_problems(context))


def _health_response(problems: list[str]) -> Response:
    status, code = ("problem", 503) if problems else ("ok", 200)
    return JSONResponse({"status": status, "problems": problems}, code, {"Cache-Control": "no-store"})


@router.get("/monitoring/targets")
def show_targets(caller: CallerDep, context: ContextDep) -> Response:
    """List the exporters on the nodes, for the HTTP service discovery of Prometheus."""
    return JSONResponse(list_targets(context))
