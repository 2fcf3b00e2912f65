"""What a job left in its own folder, over HTTP."""

from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.services.jobs.files import list_files, open_file

router = APIRouter(tags=["jobs"])
FilePath = Annotated[str, Query(max_length=4000)]
# A file is its owner's: a browser must neither show it nor run what is in it.
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "X-Content-Type-Options": "nosniff",
}


class JobFileResponse(BaseModel):
    name: str
    kind: str
    size_bytes: int
    changed_at: str


class JobFilesResponse(BaseModel):
    path: str
    items: list[JobFileResponse]
    is_cut: bool


@router.get("/jobs/{job_id}/files", summary="What a job left in a folder below its own")
def show_files(job_id: IdPath, caller: CallerDep, context: ContextDep, path: FilePath = "") -> JobFilesResponse:
    """For its owner, managers of its project and admins."""
    found = list_files(context, caller, job_id, path)
    items = [
        JobFileResponse(
            name=one.name, kind=one.kind, size_bytes=one.size_bytes, changed_at=one.changed_at.isoformat()
        )
        for one in found.entries
        if _is_text(one.name)
    ]
    return JobFilesResponse(path=found.path, items=items, is_cut=found.is_cut)


@router.get("/jobs/{job_id}/file", summary="One of these files, to be saved")
def download_file(job_id: IdPath, caller: CallerDep, context: ContextDep, path: FilePath) -> Response:
    """Plain files of the job's owner only; no link is followed."""
    found = open_file(context, caller, job_id, path)
    headers = _HEADERS | {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
        "Content-Length": str(found.size_bytes),
    }
    return StreamingResponse(found.chunks(), media_type="application/octet-stream", headers=headers)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
