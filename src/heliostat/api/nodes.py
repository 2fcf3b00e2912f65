"""Endpoints about nodes and the server itself."""

from collections import defaultdict
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import JSONResponse, Response

from heliostat import __version__
from heliostat.api.deps import CallerDep, ContextDep
from heliostat.api.schemas import DrainBody, NodeChangeBody
from heliostat.api.views import node_view
from heliostat.models import ACTIVE, Job, Node
from heliostat.services import nodes as services
from heliostat.services.context import Context
from heliostat.store import jobs as stored

router = APIRouter(tags=["cluster"])
NodeName = Annotated[str, Path(max_length=128)]


@router.get("/nodes")
def list_nodes(caller: CallerDep, context: ContextDep) -> Response:
    """All nodes with what is used of them."""
    tenants = _jobs_on_nodes(context)
    nodes = context.fleet.nodes_now()
    return JSONResponse({"items": [node_view(node, tenants[node.name]) for node in nodes], "next_cursor": None})


@router.get("/nodes/{name}")
def show_node(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """One node."""
    return _answer(context, services.get_node(context, name))


@router.post("/nodes/{name}/drain")
def drain(name: NodeName, body: DrainBody, caller: CallerDep, context: ContextDep) -> Response:
    """Start nothing new on a node; what runs there goes on. Admins only."""
    return _answer(context, services.drain_node(context, caller, name, body.reason))


@router.post("/nodes/{name}/resume")
def resume(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """Use a drained node again. Admins only."""
    return _answer(context, services.resume_node(context, caller, name))


@router.patch("/nodes/{name}")
def update(name: NodeName, body: NodeChangeBody, caller: CallerDep, context: ContextDep) -> Response:
    """Set labels, data classes, and whether GPUs may be shared. Admins only."""
    wish = services.NodeChange(**body.model_dump(exclude_unset=True))
    return _answer(context, *services.update_node(context, caller, name, wish))


@router.get("/status")
def status(request: Request, caller: CallerDep, context: ContextDep) -> Response:
    """The server: process, version, engine, how many jobs are in which state, how good forecasts were."""
    with context.store.read() as conn:
        counts = stored.count_unfinished_by_state(conn)
    facts = request.app.state.facts
    jobs = {state.value: counts.get(state, 0) for state in counts}
    told = {"version": __version__, "engine": context.engine.name, "user": caller.user.name, "jobs": jobs}
    return JSONResponse({**facts, **told, "forecasts": asdict(context.forecaster.accuracy())})


@router.get("/doctor")
def doctor(caller: CallerDep, context: ContextDep) -> Response:
    """What is wrong with this installation and what to do about it. Admins only."""
    findings = services.examine_installation(context, caller)
    return JSONResponse({"findings": [asdict(finding) for finding in findings]})


def _answer(context: Context, node: Node, note: str | None = None) -> Response:
    return JSONResponse(node_view(node, _jobs_on_nodes(context)[node.name]) | {"note": note})


def _jobs_on_nodes(context: Context) -> dict[str, list[Job]]:
    """By node: the jobs of which at least one task is there."""
    with context.store.read() as conn:
        active = stored.list_jobs(conn, stored.JobFilter(states=ACTIVE), limit=100_000)
    by_node: dict[str, list[Job]] = defaultdict(list)
    for job in active:
        for name in dict.fromkeys(place.node for place in job.task_places):
            by_node[name].append(job)
    return by_node
