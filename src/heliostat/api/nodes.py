"""Endpoints of nodes."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import Path
from pydantic import Field, StrictBool, StringConstraints
from starlette.responses import JSONResponse, Response

from heliostat.api.field_types import SingleLine, StrictInteger
from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import Json, serialize_node, serialize_time
from heliostat.models import ACTIVE_STATES, Caller, Job, Node, Reservation
from heliostat.models.gpu_errors import describe_error
from heliostat.services.cluster import gpus
from heliostat.services.cluster import nodes as services
from heliostat.services.cluster.foreign_jobs import foreign_jobs_by_node, mark_devices_in_foreign_use
from heliostat.services.cluster.nodes import get_recomposition, recompose_node
from heliostat.services.cluster.reservations import list_reservations
from heliostat.services.context import Context
from heliostat.store import jobs as stored

router = BodyRouter(tags=["cluster"])
NodeName = Annotated[str, Path(max_length=128)]
GpuNumber = Annotated[str, Path(pattern=r"^\d{1,4}$")]
LabelPart = Annotated[str, StringConstraints(max_length=200, strict=True)]
_RESERVATION_HORIZON = timedelta(days=7)


class DrainNodeBody(RequestBody):
    reason: SingleLine


class ResumeGpuBody(RequestBody):
    reason: SingleLine


class RecomposeNodeBody(RequestBody):
    gpus: Annotated[
        dict[LabelPart, Annotated[StrictInteger, Field(ge=0, le=64)]],
        Entries(8),
        Field(description="Number of GPUs that the node will have, by type; empty: none."),
    ]
    dry_run: bool = False


class NodeChangeBody(RequestBody):
    """Only given fields change. A label with the value null is removed."""

    labels: Annotated[dict[LabelPart, LabelPart | None], Entries(1000)] = {}
    data_class: Annotated[
        StrictInteger, Field(ge=0, le=3, description="Highest data class that the node may process.")
    ] = 0
    min_data_class: Annotated[
        StrictInteger, Field(ge=0, le=3, description="Lowest data class that the node accepts.")
    ] = 0
    splits_devices: StrictBool = Field(False, description="Whether several jobs may share one GPU.")


@router.get("/nodes")
def list_nodes(caller: CallerDep, context: ContextDep) -> Response:
    """List nodes with their used resources and their reservations now or within a week."""
    nodes = _views(context, caller, context.node_inventory.fresh_nodes())
    return JSONResponse({"items": nodes, "next_cursor": None})


@router.get("/nodes/{name}")
def show_node(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """Show a node."""
    return _node_response(context, caller, services.get_node(context, name))


@router.post("/nodes/{name}/drain")
def drain_node(name: NodeName, body: DrainNodeBody, caller: CallerDep, context: ContextDep) -> Response:
    """Start no new jobs on a node; its running jobs continue. Admins only."""
    return _node_response(context, caller, services.drain_node(context, caller, name, body.reason))


@router.post("/nodes/{name}/resume")
def resume_node(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """Start jobs on a drained node again. Admins only."""
    return _node_response(context, caller, services.resume_node(context, caller, name))


@router.patch("/nodes/{name}")
def update_node(name: NodeName, body: NodeChangeBody, caller: CallerDep, context: ContextDep) -> Response:
    """Change the labels and data classes of a node, and whether its GPUs may be shared. Admins only."""
    change = services.NodeChange(**body.model_dump(exclude_unset=True))
    return _node_response(context, caller, *services.update_node(context, caller, name, change))


@router.get("/nodes/{name}/gpus")
def list_gpu_history(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """List the GPUs that a node had last, with their use and errors. Errors of programs are for admins only."""
    items = [_history_view(history) for history in gpus.list_gpu_history(context, caller, name)]
    return JSONResponse({"items": items, "next_cursor": None})


@router.post("/nodes/{name}/gpus/{number}/test")
def run_gpu_test(name: NodeName, number: GpuNumber, caller: CallerDep, context: ContextDep) -> Response:
    """Test a GPU that failed; if it passes, jobs use it again. Responds after up to two minutes. Admins only."""
    test = gpus.run_gpu_test(context, caller, name, number)
    return JSONResponse({"passed": test.passed, "steps": [asdict(step) for step in test.steps]})


@router.post("/nodes/{name}/gpus/{number}/resume")
def resume_gpu(
    name: NodeName, number: GpuNumber, body: ResumeGpuBody, caller: CallerDep, context: ContextDep
) -> Response:
    """Use a GPU that failed again, without a test. Admins only."""
    return _node_response(context, caller, gpus.resume_gpu(context, caller, name, number, body.reason))


@router.post("/nodes/{name}/recompose")
def recompose(name: NodeName, body: RecomposeNodeBody, caller: CallerDep, context: ContextDep) -> Response:
    """Change the GPUs of a dynamic Slurm node when its jobs have ended. Responds immediately. Admins only."""
    result = recompose_node(context, caller, name, body.gpus, dry_run=body.dry_run)
    return JSONResponse(asdict(result) | {"is_done": not result.steps})


@router.get("/nodes/{name}/recompose")
def show_recompose_progress(name: NodeName, caller: CallerDep, context: ContextDep) -> Response:
    """Show the progress of a change of GPUs. Admins only."""
    progress = get_recomposition(context, caller, name)
    if progress is None:
        return JSONResponse({"node": name, "gpus": {}, "steps": [], "at": 0, "error": None, "is_done": True})
    return JSONResponse(asdict(progress) | {"is_done": False})


def _history_view(history: gpus.GpuHistory) -> Json:
    record = history.record
    return {
        "uuid": record.uuid,
        "number": record.number,
        "first_seen_at": serialize_time(record.first_seen_at),
        "used_hours": round(record.used_seconds / 3600, 2),
        "peak_temperature": record.peak_temperature,
        "failed_at": serialize_time(record.failed_at),
        "failure": gpus.describe_failure(record),
        "errors": [
            {
                "kind": error.kind,
                "at": serialize_time(error.at),
                "description": describe_error(error.kind),
                "job_id": error.job_id,
            }
            for error in history.errors
        ],
    }


def _node_response(context: Context, caller: Caller, node: Node, note: str | None = None) -> Response:
    (view,) = _views(context, caller, [node])
    return JSONResponse(view | {"note": note})


def _views(context: Context, caller: Caller, nodes: Iterable[Node]) -> list[Json]:
    tenants, now = _jobs_on_nodes(context), context.now()
    reservations = list_reservations(context, caller)
    guests = foreign_jobs_by_node(context, caller)
    return [
        serialize_node(
            mark_devices_in_foreign_use(node, guests.get(node.name, ())),
            tenants[node.name],
            guests.get(node.name, ()),
        )
        | {
            "exclusive_job": _exclusive_job(tenants[node.name]),
            "reserved": serialize_node_reservations(node.name, reservations, now),
        }
        for node in nodes
    ]


def _exclusive_job(jobs: Iterable[Job]) -> int | None:
    return next((job.id for job in jobs if job.placement.exclusive), None)


def serialize_node_reservations(node: str, reservations: Iterable[Reservation], now: datetime) -> list[Json]:
    """The next period of each reservation of this node that is active now or starts within a week."""
    items = []
    for reservation in reservations:
        times = next(reservation.occurrences(now), None)
        if node in reservation.nodes and times is not None and times[0] <= now + _RESERVATION_HORIZON:
            period: Json = {"starts_at": serialize_time(times[0]), "ends_at": serialize_time(times[1])}
            fields = {
                "name": reservation.name,
                "project": reservation.project,
                "gpus": reservation.gpus_per_node,
                "reason": reservation.reason,
            }
            items.append(fields | period)
    return items


def _jobs_on_nodes(context: Context) -> dict[str, list[Job]]:
    """The jobs with at least one task on each node."""
    with context.store.read() as conn:
        active = stored.list_jobs(conn, stored.JobFilter(states=ACTIVE_STATES), limit=100_000)
    by_node: dict[str, list[Job]] = defaultdict(list)
    for job in active:
        for name in dict.fromkeys(place.node for place in job.task_placements):
            by_node[name].append(job)
    return by_node
