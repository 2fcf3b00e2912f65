"""Sends a folder for jobs: all but what .gitignore and .heliostatignore name, and only what the server lacks."""

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
_BATCH_BYTES = 32 * 2**20  # in one request; what is larger goes alone
_MOST_AT_ONCE = 2000
_PATIENCE_SECONDS = 60.0
IGNORE_FILES = (".gitignore", ".heliostatignore")  # where both speak of a path, the later one counts
_NEVER = frozenset({".git", ".hg", ".svn"})
_USUALLY_NOT = ["__pycache__/", "*.pyc", ".venv/", "node_modules/", ".ipynb_checkpoints/", ".DS_Store"]
_PIECE_BYTES = 2**20


@dataclass(frozen=True)
class ScannedFolder:
    path: str
    tree: "FileTree"

    def files_by_digest(self) -> "dict[str, TreeFile]":
        return {file.digest: file for file in self.tree.files}


def upload_folder(
    transport: Transport, folder: str | os.PathLike[str], progress: ProgressCallback | None = None
) -> str:
    """Sends what the server lacks of a folder; its id, for the `upload` of jobs."""
    sent = upload_scanned_folder(transport, scan_folder(folder), progress)
    remember_uploaded_folder(sent, folder)
    return sent


def with_upload_id(transport: Transport, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of a job; a folder to upload becomes its id."""
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
    """The id under which the server has it then."""
    return _Sending(transport, scanned, progress or (lambda sent, total: None), batch_bytes).run()


class _Sending:
    """One upload under way."""

    def __init__(
        self, transport: Transport, scanned: ScannedFolder, progress: ProgressCallback, batch_bytes: int
    ) -> None:
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
                if patience.is_expired or (known < 0 and self._sent == 0):
                    raise
                time.sleep(patience.remaining_seconds(0.5))

    def _send(self, missing: list[str]) -> None:
        files = self._scanned.files_by_digest()
        wanted = [files[digest] for digest in missing]
        self._sent, self._total = 0, sum(file.size_bytes for file in wanted)
        self._progress(0, self._total)
        for batch in _batches(wanted, self._batch_bytes):
            length = sum(len(_head(file)) + file.size_bytes for file in batch)
            self._transport.post_stream("/uploads/blobs", self._parts(batch), length)

    def _parts(self, batch: "list[TreeFile]") -> Iterator[bytes]:
        for file in batch:
            yield _head(file)
            for piece in read_file_chunks(self._scanned.path, file):
                yield piece
                self._sent += len(piece)
                self._progress(self._sent, self._total)


def is_upload_id(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _head(file: "TreeFile") -> bytes:
    return f"{file.digest} {file.size_bytes}\n".encode()


def _batches(files: "list[TreeFile]", batch_bytes: int) -> "Iterator[list[TreeFile]]":
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


def _body(tree: "FileTree") -> dict[str, Any]:
    files = [
        {"path": file.path, "sha256": file.digest, "size": file.size_bytes, "executable": file.is_executable}
        for file in tree.files
    ]
    return {"files": files, "links": [{"path": link.path, "target": link.target} for link in tree.links]}


def scan_folder(folder: str | os.PathLike[str]) -> ScannedFolder:
    """Raises Invalid for what cannot be uploaded."""
    from heliostat.models.uploads import make_tree

    root = os.path.abspath(os.path.expanduser(os.fspath(folder)))
    if not os.path.isdir(root):
        raise Invalid(f"{root} is not a folder.", "Name the folder with your code: --upload .")
    files: list[TreeFile] = []
    links: list[TreeLink] = []
    for path, about in _walk(root, "", [("", _spec(_USUALLY_NOT))]):
        if stat.S_ISLNK(about.st_mode):
            links.append(_link(root, path))
        elif stat.S_ISREG(about.st_mode):
            files.append(_file(root, path, about))
        else:
            raise Invalid(
                f"{path} is neither a file, a folder nor a link.", "Name it in .heliostatignore to leave it out."
            )
    try:
        return ScannedFolder(root, make_tree(files, links))
    except ValueError as error:
        raise Invalid(
            f"{root} cannot be uploaded: {error}.", "Name in .heliostatignore what to leave out."
        ) from error


def read_file_chunks(root: str, file: "TreeFile") -> Iterator[bytes]:
    """As many bytes as it had when it was looked at. Raises Invalid when it has changed since."""
    left = file.size_bytes
    with open(os.path.join(root, file.path), "rb") as opened:
        while left and (data := opened.read(min(_PIECE_BYTES, left))):
            left -= len(data)
            yield data
    if left:
        raise _changed(file.path)


_Specs = list[tuple[str, Any]]


def _walk(root: str, below: str, specs: _Specs) -> Iterator[tuple[str, os.stat_result]]:
    specs = specs + _specs_of(root, below)
    with os.scandir(os.path.join(root, below)) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        _check_name(path)
        is_folder = entry.is_dir(follow_symlinks=False)
        if entry.name in _NEVER or _is_ignored(f"{path}/" if is_folder else path, specs):
            continue
        if is_folder:
            yield from _walk(root, path, specs)
        else:
            yield path, entry.stat(follow_symlinks=False)


def _specs_of(root: str, below: str) -> _Specs:
    lines: list[str] = []
    for name in IGNORE_FILES:
        path = os.path.join(root, below, name)
        if os.path.isfile(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                lines += file.read().splitlines()
    return [(f"{below}/" if below else "", _spec(lines))] if lines else []


def _spec(lines: list[str]) -> Any:
    """The library is loaded only by those who upload something."""
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)


def _is_ignored(path: str, specs: _Specs) -> bool:
    """The word of the file nearest to it counts."""
    for base, spec in reversed(specs):
        said: bool | None = spec.check_file(path.removeprefix(base)).include
        if said is not None:
            return said
    return False


def _check_name(path: str) -> None:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise Invalid(
            f"The name {path!a} is not UTF-8.", "Rename it, or name it in .heliostatignore by a pattern."
        ) from None


def _link(root: str, path: str) -> "TreeLink":
    """It must stay in the folder as it is written, and also when all links are followed."""
    from heliostat.models.uploads import TreeLink, is_link_outside

    target = os.readlink(os.path.join(root, path))
    end = os.path.realpath(os.path.join(root, path))
    if is_link_outside(path, target) or not (end + "/").startswith(os.path.realpath(root) + "/"):
        raise Invalid(
            f"The link {path} -> {target} leaves the folder.",
            "Name it in .heliostatignore to leave it out, or put the file itself there.",
        )
    return TreeLink(path, target)


def _file(root: str, path: str, about: os.stat_result) -> "TreeFile":
    from heliostat.models.uploads import TreeFile

    digest = hashlib.sha256()
    size = 0
    try:
        with open(os.path.join(root, path), "rb") as opened:
            while data := opened.read(_PIECE_BYTES):
                digest.update(data)
                size += len(data)
    except OSError as error:
        raise Invalid(
            f"{path} cannot be read: {error.strerror}.", "Name it in .heliostatignore to leave it out."
        ) from error
    return TreeFile(path, digest.hexdigest(), size, bool(about.st_mode & 0o100))


def _changed(path: str) -> Invalid:
    return Invalid(f"{path} has changed while it was uploaded.", "Try again when nothing writes to it.")
