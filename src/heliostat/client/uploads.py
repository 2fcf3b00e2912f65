"""Uploads folders for jobs: skips files in .gitignore and .heliostatignore, sends only files the server lacks."""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heliostat.client.source_code import remember_uploaded_folder
from heliostat.client.transport import Deadline, Transport
from heliostat.errors import Invalid, ServerUnreachable, TooManyRequests

if TYPE_CHECKING:
    from heliostat.models.uploads import FileTree, TreeFile, TreeLink

ProgressCallback = Callable[[int, int], None]
_BATCH_BYTES = 32 * 2**20  # per request; a larger file is sent alone
_MAX_BATCH_FILES = 2000
_RETRY_SECONDS = 60.0
IGNORE_FILES = (".gitignore", ".heliostatignore")  # if both match a path, the later one wins
_ALWAYS_IGNORED = frozenset({".git", ".hg", ".svn"})
_IGNORED_BY_DEFAULT = ["__pycache__/", "*.pyc", ".venv/", "node_modules/", ".ipynb_checkpoints/", ".DS_Store"]
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class ScannedFolder:
    path: str
    tree: "FileTree"

    def files_by_digest(self) -> "dict[str, TreeFile]":
        """A file for each distinct content."""
        return {file.digest: file for file in self.tree.files}


def upload_folder(
    transport: Transport, folder: str | os.PathLike[str], progress: ProgressCallback | None = None
) -> str:
    """Uploads a folder and returns its id, for the `upload` of jobs."""
    upload_id = upload_scanned_folder(transport, scan_folder(folder), progress)
    remember_uploaded_folder(upload_id, folder)
    return upload_id


def with_upload_id(transport: Transport, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a job, with `upload` as an id; uploads the folder if needed."""
    folder = fields.get("upload")
    if folder is None or is_upload_id(folder):
        return fields
    return {**fields, "upload": upload_folder(transport, folder)}


def upload_scanned_folder(
    transport: Transport,
    scanned: ScannedFolder,
    progress: ProgressCallback | None = None,
    batch_bytes: int = _BATCH_BYTES,
) -> str:
    """Returns the id of the upload."""
    return _Upload(transport, scanned, progress or (lambda sent, total: None), batch_bytes).run()


class _Upload:
    """An upload in progress."""

    def __init__(
        self, transport: Transport, scanned: ScannedFolder, progress: ProgressCallback, batch_bytes: int
    ) -> None:
        self._batch_bytes = batch_bytes
        self._transport, self._scanned, self._progress = transport, scanned, progress
        self._body = _body(scanned.tree)
        self._sent = self._total = 0

    def run(self) -> str:
        deadline, missing_count = Deadline(_RETRY_SECONDS), -1
        while True:
            try:
                response = self._transport.call("POST", "/uploads", self._body, may_repeat=True)
                if not response["missing"]:
                    return str(response["id"])
                if len(response["missing"]) != missing_count:
                    deadline, missing_count = Deadline(_RETRY_SECONDS), len(response["missing"])
                self._send(response["missing"])
            except (ServerUnreachable, TooManyRequests):
                if deadline.is_expired or (missing_count < 0 and self._sent == 0):
                    raise
                time.sleep(deadline.remaining_seconds(0.5))

    def _send(self, missing: list[str]) -> None:
        by_digest = self._scanned.files_by_digest()
        files = [by_digest[digest] for digest in missing]
        self._sent, self._total = 0, sum(file.size_bytes for file in files)
        self._progress(0, self._total)
        for batch in _batches(files, self._batch_bytes):
            length = sum(len(_head(file)) + file.size_bytes for file in batch)
            self._transport.post_stream("/uploads/blobs", self._parts(batch), length)

    def _parts(self, batch: "list[TreeFile]") -> Iterator[bytes]:
        for file in batch:
            yield _head(file)
            for chunk in read_file_chunks(self._scanned.path, file):
                yield chunk
                self._sent += len(chunk)
                self._progress(self._sent, self._total)


def is_upload_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _head(file: "TreeFile") -> bytes:
    return f"{file.digest} {file.size_bytes}\n".encode()


def _batches(files: "list[TreeFile]", batch_bytes: int) -> "Iterator[list[TreeFile]]":
    batch: list[TreeFile] = []
    size = 0
    for file in files:
        if batch and (size + file.size_bytes > batch_bytes or len(batch) == _MAX_BATCH_FILES):
            yield batch
            batch, size = [], 0
        batch.append(file)
        size += file.size_bytes
    if batch:
        yield batch


def _body(tree: "FileTree") -> dict[str, Any]:
    files = [
        {"path": file.path, "sha256": file.digest, "size": file.size_bytes, "executable": file.is_executable}
        for file in tree.files
    ]
    return {"files": files, "links": [{"path": link.path, "target": link.target} for link in tree.links]}


def scan_folder(folder: str | os.PathLike[str]) -> ScannedFolder:
    """The files and links of a folder, with digests. Raises Invalid if one cannot be uploaded."""
    from heliostat.models.uploads import make_tree

    root = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    if not os.path.isdir(root):
        raise Invalid(f"{root} is not a folder.", "Name the folder with your code: --upload .")
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    for path, status in _walk(root, "", [("", _spec(_IGNORED_BY_DEFAULT))]):
        if stat.S_ISLNK(status.st_mode):
            links.append(_link(root, path))
        elif stat.S_ISREG(status.st_mode):
            files.append(_file(root, path, status))
        else:
            raise Invalid(f"{path} is not a file, a folder or a link.", "Add it to .heliostatignore to skip it.")
    try:
        return ScannedFolder(root, make_tree(files, links))
    except ValueError as error:
        raise Invalid(f"{root} cannot be uploaded: {error}.", "Add files to skip to .heliostatignore.") from error


def read_file_chunks(root: str, file: "TreeFile") -> Iterator[bytes]:
    """As many bytes as the scan has found. Raises Invalid if the file is shorter now."""
    left = file.size_bytes
    with open(os.path.join(root, file.path), "rb") as opened:
        while left and (data := opened.read(min(_CHUNK_BYTES, left))):
            left -= len(data)
            yield data
    if left:
        raise _changed(file.path)


_Specs = list[tuple[str, Any]]


def _walk(root: str, folder: str, specs: _Specs) -> Iterator[tuple[str, os.stat_result]]:
    specs = specs + _specs_of(root, folder)
    with os.scandir(os.path.join(root, folder)) as unsorted:
        entries = sorted(unsorted, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{folder}/{entry.name}" if folder else entry.name
        _check_name(path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _ALWAYS_IGNORED or _is_ignored(f"{path}/" if is_folder else path, specs):
            continue
        if is_folder:
            yield from _walk(root, path, specs)
        else:
            yield path, entry.stat(follow_symlinks=False)


def _specs_of(root: str, folder: str) -> _Specs:
    lines: list[str] = []
    for name in IGNORE_FILES:
        path = os.path.join(root, folder, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += file.read().splitlines()
    return [(f"{folder}/" if folder else "", _spec(lines))] if lines else []


def _spec(lines: list[str]) -> Any:
    """Imports the library only when a folder is uploaded."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, specs: _Specs) -> bool:
    """The rules in the nearest folder win."""
    for base, spec in reversed(specs):
        is_match: bool | None = spec.check_file(path.removeprefix(base)).include
        if is_match is not None:
            return is_match
    return False


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"The name {path!a} is not UTF-8.", "Rename it, or add a pattern to .heliostatignore."
        ) from None


def _link(root: str, path: str) -> "TreeLink":
    """The target must be inside the folder, both as written and with all links resolved."""
    from heliostat.models.uploads import TreeLink, is_link_outside

    target = os.readlink(os.path.join(root, path))
    end = os.path.realpath(os.path.join(root, path))
    if is_link_outside(path, target) or not (end + "/").startswith(os.path.realpath(root) + "/"):
        raise Invalid(
            f"The link {path} -> {target} points outside the folder.",
            "Add it to .heliostatignore to skip it, or replace it by the file.",
        )
    return TreeLink(path, target)


def _file(root: str, path: str, status: os.stat_result) -> "TreeFile":
    from heliostat.models.uploads import TreeFile

    digest = hashlib.sha256()
    size = 0
    try:
        with open(os.path.join(root, path), "rb") as opened:
            while data := opened.read(_CHUNK_BYTES):
                digest.update(data)
                size += len(data)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}.", "Add it to .heliostatignore to skip it."
        ) from error
    return TreeFile(path, digest.hexdigest(), size, bool(status.st_mode & 0o100))


def _changed(path: str) -> Invalid:
    return Invalid(f"{path} changed during the upload.", "Try again when no process writes to it.")
