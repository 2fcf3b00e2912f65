"""Sends a folder for jobs: only what the server has not yet."""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from heliostat.client.folders import ScannedFolder, pieces, scan_folder
from heliostat.client.jobs import Deadline
from heliostat.client.records import note_sent
from heliostat.client.transport import Transport
from heliostat.errors import ServerUnreachable, TooManyRequests
from heliostat.models.uploads import Tree, TreeFile

Progress = Callable[[int, int], None]
_BATCH_BYTES = 32 * 2**20  # in one request; what is larger goes alone
_MOST_AT_ONCE = 2000
_PATIENCE_SECONDS = 60.0


class UploadVerbs:
    """What the client does with code."""

    _transport: Transport

    def upload(self, folder: str | os.PathLike[str], *, progress: Progress | None = None) -> str:
        """Sends what the server lacks of a folder; its id, for the `upload` of jobs.

        Leaves out what .gitignore and .heliostatignore name. `progress` is told how many bytes were sent, of how
        many. When the server goes away in between it is tried again for a minute, and only the rest is sent.
        """
        sent = send_scanned(self._transport, scan_folder(folder), progress or (lambda sent, total: None))
        note_sent(sent, folder)
        return sent

    def _with_code(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        """A folder to upload becomes its id."""
        folder = fields.get("upload")
        return fields if folder is None or is_upload_id(folder) else {**fields, "upload": self.upload(folder)}


def send_scanned(
    transport: Transport, scanned: ScannedFolder, progress: Progress, batch_bytes: int = _BATCH_BYTES
) -> str:
    """The id under which the server has it then."""
    return _Sending(transport, scanned, progress, batch_bytes).run()


class _Sending:
    """One upload under way."""

    def __init__(self, transport: Transport, scanned: ScannedFolder, progress: Progress, batch_bytes: int) -> None:
        self._batch_bytes = batch_bytes
        self._transport, self._scanned, self._progress = transport, scanned, progress
        self._body = _body(scanned.tree)
        self._sent = self._total = 0

    def run(self) -> str:
        patience, known = Deadline(_PATIENCE_SECONDS), -1
        while True:
            try:
                offered = self._transport.call("POST", "/uploads", self._body, may_repeat=True)
                if not offered["missing"]:
                    return str(offered["id"])
                if len(offered["missing"]) != known:
                    patience, known = Deadline(_PATIENCE_SECONDS), len(offered["missing"])
                self._send(offered["missing"])
            except (ServerUnreachable, TooManyRequests):
                if patience.is_past or (known < 0 and self._sent == 0):
                    raise
                time.sleep(patience.left(0.5))

    def _send(self, missing: list[str]) -> None:
        files = self._scanned.files_by_digest()
        wanted = [files[digest] for digest in missing]
        self._sent, self._total = 0, sum(file.size_bytes for file in wanted)
        self._progress(0, self._total)
        for batch in _batches(wanted, self._batch_bytes):
            length = sum(len(_head(file)) + file.size_bytes for file in batch)
            self._transport.post_parts("/uploads/blobs", self._parts(batch), length)

    def _parts(self, batch: list[TreeFile]) -> Iterator[bytes]:
        for file in batch:
            yield _head(file)
            for piece in pieces(self._scanned.path, file):
                yield piece
                self._sent += len(piece)
                self._progress(self._sent, self._total)


def is_upload_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _head(file: TreeFile) -> bytes:
    return f"{file.digest} {file.size_bytes}\n".encode()


def _batches(files: list[TreeFile], batch_bytes: int) -> Iterator[list[TreeFile]]:
    batch: list[TreeFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size_bytes > batch_bytes or len(batch) == _MOST_AT_ONCE):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size_bytes
    if batch:
        yield batch


def _body(tree: Tree) -> dict[str, Any]:
    files = [
        {"path": file.path, "sha256": file.digest, "size": file.size_bytes, "executable": file.is_executable}
        for file in tree.files
    ]
    return {"files": files, "links": [{"path": link.path, "target": link.target} for link in tree.links]}
