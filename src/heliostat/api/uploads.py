"""Endpoints that upload the code of jobs: register a folder, then send its missing file contents."""

from collections.abc import AsyncIterator
from typing import Annotated, Self

from pydantic import Field, StrictBool, StringConstraints, model_validator
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from heliostat.api.request_bodies import BodyRouter, Entries, RequestBody
from heliostat.api.request_context import CallerDep, ContextDep
from heliostat.models.uploads import MAX_UPLOAD_FILES, FileTree, TreeFile, TreeLink, make_tree
from heliostat.services.jobs.uploads import UploadReceiver, register_upload

router = BodyRouter(tags=["uploads"])
STREAM_PATH = "/uploads/blobs"
_BLOCK_BYTES = 2**20
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=3000, strict=True)]
Digest = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$", strict=True)]


class UploadFileBody(RequestBody):
    path: RelativePath
    sha256: Digest
    size: Annotated[int, Field(ge=0, le=2**50, strict=True)]
    executable: StrictBool = False


class UploadLinkBody(RequestBody):
    path: RelativePath
    target: RelativePath


class UploadBody(RequestBody):
    """A folder: its files with the SHA-256 of their contents, and links that do not leave the folder."""

    files: Annotated[list[UploadFileBody], Entries(MAX_UPLOAD_FILES)] = []
    links: Annotated[list[UploadLinkBody], Entries(MAX_UPLOAD_FILES)] = []

    @model_validator(mode="after")
    def _check_tree(self) -> Self:
        self.to_tree()
        return self

    def to_tree(self) -> FileTree:
        files = [TreeFile(file.path, file.sha256, file.size, file.executable) for file in self.files]
        return make_tree(files, [TreeLink(link.path, link.target) for link in self.links])


@router.post("/uploads")
def create_upload(body: UploadBody, caller: CallerDep, context: ContextDep) -> Response:
    """Register a folder. Returns the contents that you have not sent yet; if there are none, jobs can use its `id`
    as their `upload`."""
    upload = register_upload(context, caller, body.to_tree())
    return JSONResponse({"id": upload.upload_id, "size_bytes": upload.size_bytes, "missing": list(upload.missing)})


@router.post(STREAM_PATH)
async def receive_contents(request: Request, caller: CallerDep, context: ContextDep) -> Response:
    """Send file contents one after the other, each after a line `SHA256 SIZE`. Complete files are stored even if
    the request is interrupted."""
    with context.upload_limit.acquire(caller.user.name):
        receiver = await run_in_threadpool(UploadReceiver, context, caller)
        try:
            async for block in _blocks(request):
                await run_in_threadpool(receiver.feed, block)
            return JSONResponse({"stored": receiver.finish()})
        except ClientDisconnect:
            return Response(status_code=400)  # not sent: the client has disconnected
        finally:
            receiver.discard_partial()


async def _blocks(request: Request) -> AsyncIterator[bytes]:
    """Joins small chunks, because each block is passed to another thread."""
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        if len(buffer) >= _BLOCK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)
