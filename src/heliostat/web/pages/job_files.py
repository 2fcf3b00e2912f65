"""Files of a job: folder listing and downloads."""

import contextlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query
from starlette.responses import Response, StreamingResponse

from heliostat.errors import HeliostatError
from heliostat.models import Job
from heliostat.models.notebooks import RESULTS_FOLDER
from heliostat.services.jobs.files import FileEntry, FolderListing, has_own_folder, list_files, open_file
from heliostat.web.rendering import PAGE_HEADERS, PageSpec, render_page
from heliostat.web.request_context import AuthenticatedDep, AuthenticatedRequest
from heliostat.web.view_models import JOB_ID_PATH

router = APIRouter()
FilePath = Annotated[str, Query(max_length=4000)]
_MIB = 2.0**20
_MAX_SHOWN = 20


@dataclass(frozen=True, slots=True)
class FileRow:
    name: str
    kind: str
    href: str  # empty: it cannot be opened
    size_mib: float | None
    size_bytes: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class JobFilesView:
    job_id: int
    path: str
    parent_folders: tuple[tuple[str, str], ...]
    rows: tuple[FileRow, ...]
    is_truncated: bool


@router.get("/jobs/" + JOB_ID_PATH + "/files")
def show_files(request: AuthenticatedDep, job_id: int, path: FilePath = "") -> Response:
    folder = list_files(request.context, request.caller, job_id, path)
    breadcrumbs = (("Jobs", "/jobs"), (f"Job {job_id}", f"/jobs/{job_id}"))
    return render_page(
        request, PageSpec("job_files.html", "Files", breadcrumbs=breadcrumbs), _view(job_id, folder)
    )


@router.get("/jobs/" + JOB_ID_PATH + "/file")
def download_file(request: AuthenticatedDep, job_id: int, path: FilePath) -> Response:
    """Always an attachment: a file could be an HTML page with scripts."""
    found = open_file(request.context, request.caller, job_id, path)
    name = quote(found.name.encode("utf-8", "surrogateescape"))
    headers = PAGE_HEADERS | {
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "Content-Disposition": f"attachment; filename*=UTF-8''{name}",
        "Content-Length": str(found.size_bytes),
    }
    return StreamingResponse(found.chunks(), media_type="application/octet-stream", headers=headers)


def list_result_files(request: AuthenticatedRequest, job: Job) -> tuple[FileRow, ...]:
    """The first readable files in the job's folder `results`."""
    if not has_own_folder(request.context, job):
        return ()
    with contextlib.suppress(HeliostatError):
        found = list_files(request.context, request.caller, job.id, RESULTS_FOLDER)
        return tuple(row for entry in found.entries if (row := _row(job.id, RESULTS_FOLDER, entry)).href)[
            :_MAX_SHOWN
        ]
    return ()


def _view(job_id: int, folder: FolderListing) -> JobFilesView:
    parts = folder.path.split("/") if folder.path else []
    parents = [("files", f"/jobs/{job_id}/files")]
    parents += [
        (part, _file_url(job_id, "files", "/".join(parts[: position + 1]))) for position, part in enumerate(parts)
    ]
    rows = tuple(_row(job_id, folder.path, entry) for entry in folder.entries)
    return JobFilesView(job_id, folder.path, tuple(parents), rows, folder.is_cut)


def _row(job_id: int, path: str, entry: FileEntry) -> FileRow:
    file_path = f"{path}/{entry.name}" if path else entry.name
    pages = {"folder": "files", "file": "file"}
    is_text = entry.name.isprintable()
    href = _file_url(job_id, pages[entry.kind], file_path) if entry.kind in pages and _is_utf8(entry.name) else ""
    size = entry.size_bytes / _MIB if entry.kind == "file" else None
    name = entry.name if is_text else ascii(entry.name)
    return FileRow(name, entry.kind, href, size, entry.size_bytes, entry.changed_at)


def _file_url(job_id: int, page: str, path: str) -> str:
    return f"/jobs/{job_id}/{page}?{urlencode({'path': path})}"


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
