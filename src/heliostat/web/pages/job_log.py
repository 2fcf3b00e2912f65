"""Job log: polling for new lines, and download."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import JSONResponse, Response, StreamingResponse

from heliostat.models import Job
from heliostat.services.context import Context
from heliostat.services.logs.reader import LogRange, read_log, resolve_attempt_number
from heliostat.services.logs.windows import read_log_since
from heliostat.services.permissions import require_inspectable_job
from heliostat.web.job_page.log_view import LogQuery, serialize_log_line
from heliostat.web.live_updates import LiveUpdateHub
from heliostat.web.pages.job import MAX_QUERY_INTEGER, AttemptNumber, LogStream
from heliostat.web.rendering import PAGE_HEADERS
from heliostat.web.request_context import AuthenticatedDep
from heliostat.web.view_models import JOB_ID_PATH

router = APIRouter()
StreamOffset = Annotated[int, Query(ge=0, le=MAX_QUERY_INTEGER)]
_CHUNK_BYTES = 2**20


@router.get("/jobs/" + JOB_ID_PATH + "/log/more")
def poll_log(
    request: AuthenticatedDep,
    job_id: int,
    stream: LogStream = "both",
    attempt: AttemptNumber = None,
    stdout: StreamOffset = 0,
    stderr: StreamOffset = 0,
) -> Response:
    """Complete lines after these offsets; `open`: incomplete last line; `rest_seconds`: when to poll again."""
    offsets = {"stdout": stdout, "stderr": stderr}
    requested = {name: offsets[name] for name in LogQuery(stream).streams}
    update = read_log_since(request.context, request.caller, job_id, attempt, requested)
    hub: LiveUpdateHub = request.http.app.state.live
    body = {
        "attempt": update.attempt,
        "newest": update.job.attempt,
        "state": update.job.state.value,
        "lines": [serialize_log_line(line) for line in update.lines if not line.is_incomplete],
        "open": [serialize_log_line(line) for line in update.lines if line.is_incomplete],
        "following": offsets | dict(update.next_offsets),
        "skipped": update.skipped_bytes,
        "over": update.job.is_terminal,
        "rest_seconds": hub.poll_interval_seconds,
    }
    return JSONResponse(body, headers=PAGE_HEADERS)


@router.get("/jobs/" + JOB_ID_PATH + "/log/raw")
def download_log(
    request: AuthenticatedDep,
    job_id: int,
    stream: Annotated[str, Query(pattern="^(stdout|stderr)$")] = "stdout",
    attempt: AttemptNumber = None,
) -> Response:
    """The whole log so far, streamed."""
    job = require_inspectable_job(request.context, request.caller, job_id)
    number = resolve_attempt_number(job, attempt)
    size = read_log(request.context, job, LogRange(stream, 0, 0, attempt)).size
    name = f"job-{job_id}.{number}.{stream}.log"
    headers = PAGE_HEADERS | {"Content-Disposition": f'attachment; filename="{name}"'}
    chunks = _chunks(request.context, job, LogRange(stream, 0, _CHUNK_BYTES, attempt), size)
    return StreamingResponse(chunks, media_type="application/octet-stream", headers=headers)


def _chunks(context: Context, job: Job, requested: LogRange, size: int) -> Iterator[bytes]:
    at = 0
    while at < size:
        part = read_log(context, job, replace(requested, offset=at))
        if not part.data:
            return
        at = part.offset + len(part.data)
        yield part.data
