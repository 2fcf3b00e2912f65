"""Past jobs for replays."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response, StreamingResponse

from heliostat.api.deps import CallerDep, ContextDep
from heliostat.api.history_schemas import SacctBody
from heliostat.services.history import export_history, import_slurm
from heliostat.store.history import Period

router = APIRouter(tags=["history"])
Since = Annotated[datetime | None, Query(alias="from")]
Until = Annotated[datetime | None, Query(alias="to")]


@router.get("/history")
async def export(
    caller: CallerDep, context: ContextDep, since: Since = None, until: Until = None, anonymous: bool = False
) -> Response:
    """Jobs that are over, oldest first, as JSON Lines; the last line counts them. Admins only."""
    period = Period(_aware(since), _aware(until))
    lines = await run_in_threadpool(export_history, context, caller, period, anonymous)
    return StreamingResponse(lines, media_type="application/x-ndjson", headers={"Cache-Control": "no-store"})


@router.post("/history/slurm")
def bring_in(body: SacctBody, caller: CallerDep, context: ContextDep) -> Response:
    """Past jobs of a Slurm cluster, as its `sacct` printed them. Said again, they change nothing. Admins only."""
    return JSONResponse(asdict(import_slurm(context, caller, body.to_text())))


def _aware(at: datetime | None) -> datetime | None:
    return at.replace(tzinfo=UTC) if at is not None and at.tzinfo is None else at
