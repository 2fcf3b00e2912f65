"""Endpoints that list and download files in the folder of a job."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Query
from pydantic import BaseModel
from starlette.responses import Response, StreamingResponse

from heliostat.api.request_bodies import BodyRouter
from heliostat.api.request_context import CallerDep, ContextDep, IdPath
from heliostat.services.jobs.files import list_files, open_file

router = BodyRouter(tags=["jobs"])
FilePath = Annotated[str, Query(max_length=4000)]
# Files are untrusted: a browser must neither display them nor run scripts in them.
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


@router.get("/jobs/{job_id}/files", summary="List files in the folder of a job or in a folder below it")
def show_files(job_id: IdPath, caller: CallerDep, context: ContextDep, path: FilePath = "") -> JobFilesResponse:
    """Allowed for its owner, managers of its project and admins."""
    listing = list_files(context, caller, job_id, path)
    items = [
        JobFileResponse(
            name=entry.name, kind=entry.kind, size_bytes=entry.size_bytes, changed_at=entry.changed_at.isoformat()
        )
        for entry in listing.entries
        if _is_encodable(entry.name)
    ]
    return JobFilesResponse(path=listing.path, items=items, is_cut=listing.is_cut)


@router.get("/jobs/{job_id}/file", summary="Download one of these files")
def download_file(job_id: IdPath, caller: CallerDep, context: ContextDep, path: FilePath) -> Response:
    """Only regular files that belong to the owner of the job; links are not followed."""
    file = open_file(context, caller, job_id, path)
    headers = _HEADERS | {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.name, safe='')}",
        "Content-Length": str(file.size_bytes),
    }
    return StreamingResponse(file.chunks(), media_type="application/octet-stream", headers=headers)


def _is_encodable(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
