"""Endpoints of parameter sweeps: submit, list, show with metrics."""

from typing import Annotated, Literal

from fastapi import Header, Path, Query
from pydantic import Field
from starlette.responses import JSONResponse, Response

from heliostat.api.account_schemas import ListResponse
from heliostat.api.request_bodies import BodyRouter, JsonObject, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.serialization import Json, serialize_metrics, serialize_time
from heliostat.api.source_code_schemas import SourceCodeBody, with_source_code
from heliostat.api.validation import read_job
from heliostat.models.workflows import Sweep
from heliostat.services.workflows import sweeps as services

router = BodyRouter(tags=["sweeps"])
SweepId = Annotated[int, Path(ge=1, le=2**53)]
IdempotencyKey = Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=200)]
SortParam = Annotated[
    str | None, Query(max_length=100, description="Parameter or metric to sort by; -acc: descending.")
]


class SweepBody(RequestBody):
    """A sweep to submit."""

    sweep: JsonObject = Field(description="As in a sweep file: name, job, and one of grid, list and random.")
    record: SourceCodeBody | None = Field(default=None, description="Git state of the code.")


@router.post("/sweeps", status_code=201, summary="Submit a sweep: all its runs or none")
def submit_sweep(
    body: SweepBody, caller: CallerDep, context: ContextDep, idempotency_key: IdempotencyKey = None
) -> Json:
    read = with_source_code(read_job, body.record)
    return serialize_sweep(services.submit_sweep(context, caller, body.sweep, read, idempotency_key))


@router.get("/sweeps", summary="List your sweeps, newest first")
def list_sweeps(
    caller: CallerDep,
    context: ContextDep,
    all_users: Annotated[bool, Query(alias="all", description="Include projects you manage.")] = False,
    limit: Annotated[int, Query(ge=1, le=200)] = services.PAGE_SIZE,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="Only sweeps with smaller ids.")] = None,
) -> ListResponse[Json]:
    sweeps = services.list_sweeps(context, caller, all_users=all_users, limit=limit, before=before)
    return ListResponse(items=[serialize_sweep(sweep) for sweep in sweeps])


@router.get("/sweeps/{number}", summary="Show a sweep: parameters and metrics of each run", response_model=None)
def show_sweep(
    number: SweepId,
    caller: CallerDep,
    context: ContextDep,
    sort: SortParam = None,
    form: Annotated[Literal["json", "csv"], Query(alias="format")] = "json",
) -> Response:
    table = services.get_sweep(context, caller, number, sort)
    if form == "csv":
        headers = {"Content-Disposition": f'attachment; filename="heliostat-sweep-{number}.csv"'}
        return Response(services.sweep_csv(table), media_type="text/csv; charset=utf-8", headers=headers)
    runs = [_run_view(run) for run in table.runs]
    return JSONResponse({**serialize_sweep(table.sweep), "metrics": list(table.metrics), "runs": runs})


def serialize_sweep(sweep: Sweep) -> Json:
    return {
        "id": sweep.id,
        "name": sweep.name,
        "user": sweep.user,
        "project": sweep.project,
        "created_at": serialize_time(sweep.created_at),
        "array_id": sweep.array_id,
        "count": len(sweep.table),
        "parameters": list(sweep.table[0]) if sweep.table else [],
    }


def _run_view(run: services.SweepRun) -> Json:
    return {
        "index": run.index,
        "job_id": run.job.id,
        "state": run.job.state.value,
        "reason": run.job.reason,
        "values": dict(run.values),
        "metrics": serialize_metrics(run.metrics),
    }
