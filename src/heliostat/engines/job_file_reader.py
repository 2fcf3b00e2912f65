"""Logs and files of jobs, in folders that this machine can read.

A job's files belong to its user and are not trusted: they are opened by descriptor, without following links and
without blocking, and only regular files of that user are read.
"""

import contextlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from itertools import islice
from pathlib import Path

from heliostat.engines.job_folders import JobFolder
from heliostat.engines.log_holes import find_holes
from heliostat.errors import Conflict, NotFound
from heliostat.models import JobId

MAX_ENTRIES = 500
MAX_HOLES = 16  # of a log; later ones are read as zeros
CHUNK_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_DEPTH = 64
_PORT, _PORTS = re.compile("[1-9][0-9]{3,4}"), range(1024, 65536)
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Part of a log. A hole in its file is skipped, so `offset` may be after the requested one."""

    data: bytes
    offset: int
    size: int  # of the whole log so far
    holes: tuple[tuple[int, int], ...] = ()  # (start, end), in order


@dataclass(frozen=True, slots=True)
class FileEntry:
    name: str
    kind: str  # folder, file, other (cannot be opened)
    size_bytes: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class FolderListing:
    path: str  # below the job's working directory; empty: that directory
    entries: tuple[FileEntry, ...]  # folders first, then by name
    is_cut: bool = False  # there are more


@dataclass(frozen=True, slots=True)
class OpenFile:
    name: str
    size_bytes: int
    file: FileIO

    def chunks(self) -> Iterator[bytes]:
        """The content up to the size at the time of opening. Closes the file."""
        left = self.size_bytes
        with self.file:
            while left > 0 and (data := self.file.read(min(CHUNK_BYTES, left))):
                left -= len(data)
                yield data


class JobFiles:
    """Job folders below `jobs/`, which only the server can write to."""

    def __init__(self, jobs: Path) -> None:
        self._jobs = jobs

    def read_log(self, job_id: JobId, attempt: int, stream: str, offset: int, limit: int) -> LogChunk:
        return read_log_file(self.job_folder(job_id).log_path(attempt, stream), offset, limit)

    def log_folder(self, job_id: JobId) -> str | None:
        return self.job_folder(job_id).path

    def has_job_files(self, job_id: JobId, name: str = "") -> bool:
        path = f"{self.job_folder(job_id).path}/{name}".rstrip("/")
        return os.path.isdir(path) and not os.path.islink(path)

    def work_folder(self, job_id: JobId) -> str:
        return f"{self.job_folder(job_id).path}/work"

    def list_job_files(self, job_id: JobId, path: str) -> FolderListing:
        with self._open_folder(job_id, _parts(path)) as (folder, _), os.scandir(folder) as scan:
            entries = [entry for item in islice(scan, MAX_ENTRIES + 1) if (entry := _make_entry(item))]
        entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
        return FolderListing("/".join(_parts(path)), tuple(entries[:MAX_ENTRIES]), len(entries) > MAX_ENTRIES)

    def open_job_file(self, job_id: JobId, path: str) -> OpenFile:
        *parents, name = _parts(path) or [""]
        with self._open_folder(job_id, parents) as (folder, owner):
            descriptor = _open(name, _FILE_FLAGS, folder)
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != owner:
            os.close(descriptor)
            raise _no_such_file()
        return OpenFile(name, status.st_size, FileIO(descriptor, "rb"))

    def read_job_file(self, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
        return read_owned_file(self.job_folder(job_id).path, name, most_bytes, end=end)

    def session_port(self, job_id: JobId, attempts: Iterable[int]) -> int | None:
        """The port that the server of one of these attempts has written into a file. Not verified."""
        texts = (self.read_job_file(job_id, f"checkpoints/.session-{number}", 16).strip() for number in attempts)
        return next((int(text) for text in texts if _PORT.fullmatch(text) and int(text) in _PORTS), None)

    def job_folder(self, job_id: JobId) -> JobFolder:
        return JobFolder.for_job(self._jobs, job_id)

    @contextlib.contextmanager
    def _open_folder(self, job_id: JobId, parts: list[str]) -> Iterator[tuple[int, int]]:
        """The descriptor of the folder, and the uid that owns the job's working directory."""
        at = _open(self.work_folder(job_id), _FOLDER_FLAGS, None)
        try:
            owner = os.fstat(at).st_uid
            for part in parts:
                below = _open(part, _FOLDER_FLAGS, at)
                os.close(at)
                at = below
            if os.fstat(at).st_uid != owner:
                raise _no_such_file()
            yield at, owner
        finally:
            os.close(at)


def read_log_file(path: str, offset: int, limit: int) -> LogChunk:
    """Part of a log; empty if the file does not exist yet. Raises OSError."""
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except FileNotFoundError:
        return LogChunk(b"", 0, 0)
    try:
        size = os.fstat(descriptor).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        holes = tuple(islice(find_holes(descriptor), MAX_HOLES))
        start = next((end for begin, end in holes if begin <= start < end), start)
        limit = min(limit, next((begin for begin, _ in holes if begin > start), size) - start)
        return LogChunk(os.pread(descriptor, limit, start), start, size, holes)
    finally:
        os.close(descriptor)


def read_owned_file(folder: str, name: str, most_bytes: int, *, end: bool = False) -> str:
    """The first or, with `end`, the last bytes of a file below `folder`. Empty if it does not exist, is not a
    regular file, has several links, or has another owner than the folder it is in."""
    *parents, last = name.split("/")
    with contextlib.ExitStack() as stack:
        try:
            at = open_without_links(folder, *parents)
            stack.callback(os.close, at)
            file = os.open(last, _FILE_FLAGS, dir_fd=at)
            stack.callback(os.close, file)
            status = os.fstat(file)
            is_owned = status.st_uid == os.fstat(at).st_uid and status.st_nlink == 1
            if not stat.S_ISREG(status.st_mode) or not is_owned:
                return ""
            return os.pread(file, most_bytes, max(0, status.st_size - most_bytes) if end else 0).decode(
                "utf-8", "replace"
            )
        except OSError:
            return ""


def _open(name: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError as error:
        hint = "Log in to the node and read it there."
        raise Conflict("Heliostat is not permitted to read this.", hint) from error
    except (OSError, ValueError):  # ELOOP: a link
        raise _no_such_file() from None


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if len(parts) > _MAX_DEPTH or any(part in (".", "..") or "\0" in part or len(part) > 255 for part in parts):
        raise _no_such_file()
    return parts


def _no_such_file() -> NotFound:
    return NotFound("There is no such file.", "Only regular files in the job's folder can be opened.")


def _make_entry(entry: "os.DirEntry[str]") -> FileEntry | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        return None  # removed meanwhile
    kind = "folder" if stat.S_ISDIR(status.st_mode) else "file" if stat.S_ISREG(status.st_mode) else "other"
    changed = min(max(0.0, status.st_mtime), _LAST_SECOND)  # its owner may have set any time
    return FileEntry(entry.name, kind, status.st_size, datetime.fromtimestamp(changed, UTC))


def open_without_links(path: str, *names: str) -> int:
    """A descriptor of the file `path`/`names`. No link is followed below `path`: the owner of a folder on the way
    could replace an entry by a link. Raises OSError."""
    descriptor = os.open(path, _FLAGS)
    for name in names:
        parent = descriptor
        try:
            descriptor = os.open(name, _FLAGS, dir_fd=parent)
        finally:
            os.close(parent)
    return descriptor


def read_file_without_links(path: str, most_bytes: int, *names: str) -> bytes:
    """The first bytes of the file `path`/`names`. Empty if it does not exist, is not a regular file, or has
    several links."""
    try:
        descriptor = open_without_links(path, *names)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        return file.read(most_bytes) if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else b""
