"""Endpoints that export finished jobs and import past jobs from Slurm."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import StringConstraints
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.api.time_fields import TimeParam
from heliostat.services.history_import_export import SacctImportRequest, export_history, import_slurm_history
from heliostat.store.history import SubmissionPeriod

router = BodyRouter(tags=["history"])
_JSON_LINES: dict[int | str, dict[str, Any]] = {200: {"content": {"application/x-ndjson": {}}}}
SinceParam = Annotated[TimeParam, Query(alias="from")]
UntilParam = Annotated[TimeParam, Query(alias="to")]

AccountName = Annotated[str, StringConstraints(min_length=1, max_length=128)]


class SacctBody(RequestBody):
    """The output of `sacct`, with its header."""

    text: str
    delimiter: Annotated[str, StringConstraints(min_length=1, max_length=40)] = "|"
    projects: Annotated[dict[AccountName, AccountName], Entries(10_000)] = {}
    users: Annotated[dict[AccountName, AccountName], Entries(10_000)] = {}

    def to_sacct_text(self) -> SacctImportRequest:
        return SacctImportRequest(self.text, self.delimiter, self.projects, self.users)


@router.get("/history", response_class=StreamingResponse, responses=_JSON_LINES)
async def export_jobs(
    caller: CallerDep,
    context: ContextDep,
    since: SinceParam = None,
    until: UntilParam = None,
    anonymous: bool = False,
) -> Response:
    """Export finished jobs as JSON Lines, oldest first; the last line is their number. Admins only."""
    period = SubmissionPeriod(since, until)
    lines = await run_in_threadpool(export_history, context, caller, period, anonymous)
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


@router.post("/history/slurm")
def import_slurm_jobs(body: SacctBody, caller: CallerDep, context: ContextDep) -> Response:
    """Import past jobs of a Slurm cluster from the output of `sacct`. May be repeated. Admins only."""
    return JSONResponse(asdict(import_slurm_history(context, caller, body.to_sacct_text())))
