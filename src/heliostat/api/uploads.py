"""Endpoints for code that is sent for jobs."""

from collections.abc import AsyncIterator
from typing import Annotated, Self

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.models.uploads import MAX_UPLOAD_FILES, FileTree, TreeFile, TreeLink, make_tree
from heliostat.services.jobs.uploads import UploadReceiver, register_upload

router = APIRouter(tags=["uploads"])
STREAM_PATH = "/uploads/blobs"
_PIECE_BYTES = 2**20
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=3000, strict=True)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


class UploadFileBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: RelativePath
    sha256: Digest
    size: Annotated[int, Field(ge=0, le=2**50, strict=True)]
    executable: bool = False


class UploadLinkBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    path: RelativePath
    target: RelativePath


class UploadBody(BaseModel):
    """A folder: its files by what is in them, and links that stay within."""

    model_config = ConfigDict(extra="forbid")

    files: Annotated[list[UploadFileBody], Field(max_length=MAX_UPLOAD_FILES)] = []
    links: Annotated[list[UploadLinkBody], Field(max_length=MAX_UPLOAD_FILES)] = []

    @model_validator(mode="after")
    def _can_be_laid_out(self) -> Self:
        self.to_tree()
        return self

    def to_tree(self) -> FileTree:
        files = [TreeFile(file.path, file.sha256, file.size, file.executable) for file in self.files]
        return make_tree(files, [TreeLink(link.path, link.target) for link in self.links])


@router.post("/uploads")
def create_upload(body: UploadBody, caller: CallerDep, context: ContextDep) -> Response:
    """Which contents of this folder you have not sent yet. None: jobs can name its `id` as their `upload`."""
    offered = register_upload(context, caller, body.to_tree())
    return JSONResponse(
        {"id": offered.upload_id, "size_bytes": offered.size_bytes, "missing": list(offered.missing)}
    )


@router.post(STREAM_PATH)
async def receive_contents(request: Request, caller: CallerDep, context: ContextDep) -> Response:
    """Contents, one after the other, each after a line `SHA256 SIZE`. What has arrived whole is kept whatever
    happens to the rest."""
    with context.upload_limit.acquire(caller.user.name):
        receiver = await run_in_threadpool(UploadReceiver, context, caller)
        try:
            async for piece in _pieces(request):
                await run_in_threadpool(receiver.feed, piece)
            return JSONResponse({"stored": receiver.finish()})
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        finally:
            receiver.discard_partial()


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    """Large enough to be worth the way to another thread."""
    waiting = bytearray()
    async for chunk in request.stream():
        waiting += chunk
        if len(waiting) >= _PIECE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    yield bytes(waiting)
