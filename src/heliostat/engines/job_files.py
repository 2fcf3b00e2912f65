"""Logs and files of jobs in folders that this machine sees, where an engine keeps them so.

A job's files are its user's, who may have put anything there: all goes through descriptors, follows no link,
blocks on nothing, and reads plain files of that user only.
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
from heliostat.errors import Conflict, NotFound
from heliostat.models import JobId

MAX_ENTRIES = 500
CHUNK_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 64
_PORT, _PORTS = re.compile("[1-9][0-9]{3,4}"), range(1024, 65536)
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class LogChunk:
    data: bytes
    offset: int
    size: int  # of the whole log so far


@dataclass(frozen=True, slots=True)
class FileEntry:
    name: str
    kind: str  # folder, file, other: what is neither cannot be opened
    size_bytes: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class FolderListing:
    path: str  # below the job's own folder; empty: that one
    entries: tuple[FileEntry, ...]  # folders first, then by name
    is_cut: bool = False  # there are more


@dataclass(frozen=True, slots=True)
class OpenFile:
    name: str
    size_bytes: int
    file: FileIO

    def chunks(self) -> Iterator[bytes]:
        """As much of it as there was when it was opened. Closes it."""
        left = self.size_bytes
        with self.file:
            while left > 0 and (data := self.file.read(min(CHUNK_BYTES, left))):
                left -= len(data)
                yield data


class JobFiles:
    """Below one folder, `jobs/`, which only the server can write to."""

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
        with self._open_folder(job_id, _parts(path)) as (folder, _), os.scandir(folder) as found:
            entries = [entry for one in islice(found, MAX_ENTRIES + 1) if (entry := _make_entry(one))]
        entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
        return FolderListing("/".join(_parts(path)), tuple(entries[:MAX_ENTRIES]), len(entries) > MAX_ENTRIES)

    def open_job_file(self, job_id: JobId, path: str) -> OpenFile:
        *above, name = _parts(path) or [""]
        with self._open_folder(job_id, above) as (folder, owner):
            descriptor = _opened(name, _FILE_FLAGS, folder)
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
            os.close(descriptor)
            raise _no_such_file()
        return OpenFile(name, about.st_size, FileIO(descriptor, "rb"))

    def read_job_file(self, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
        return read_owned_file(self.job_folder(job_id).path, name, most_bytes, end=end)

    def session_port(self, job_id: JobId, attempts: Iterable[int]) -> int | None:
        """What the server of one of these attempts has said of its port, in a file of its user."""
        found = (self.read_job_file(job_id, f"checkpoints/.session-{one}", 16).strip() for one in attempts)
        return next((int(text) for text in found if _PORT.fullmatch(text) and int(text) in _PORTS), None)

    def job_folder(self, job_id: JobId) -> JobFolder:
        return JobFolder.for_job(self._jobs, job_id)

    @contextlib.contextmanager
    def _open_folder(self, job_id: JobId, parts: list[str]) -> Iterator[tuple[int, int]]:
        """Its descriptor, and whose the job's folder is."""
        at = _opened(self.work_folder(job_id), _FOLDER_FLAGS, None)
        try:
            owner = os.fstat(at).st_uid
            for part in parts:
                below = _opened(part, _FOLDER_FLAGS, at)
                os.close(at)
                at = below
            if os.fstat(at).st_uid != owner:
                raise _no_such_file()
            yield at, owner
        finally:
            os.close(at)


def read_log_file(path: str, offset: int, limit: int) -> LogChunk:
    """Raises OSError, but not because it is not there yet."""
    try:
        descriptor = os.open(path, _FILE_FLAGS)
    except FileNotFoundError:
        return LogChunk(b"", 0, 0)
    with open(descriptor, "rb") as file:
        size = os.fstat(descriptor).st_size
        start = max(0, size + offset) if offset < 0 else min(offset, size)
        file.seek(start)
        return LogChunk(file.read(limit), start, size)


def read_owned_file(folder: str, name: str, most_bytes: int, *, end: bool = False) -> str:
    """The beginning, or the end, of a file below it whose folder has the same owner; nothing if it is not there,
    or something else."""
    *above, last = name.split("/")
    with contextlib.ExitStack() as stack:
        try:
            at = open_without_links(folder, *above)
            stack.callback(os.close, at)
            file = os.open(last, _FILE_FLAGS, dir_fd=at)
            stack.callback(os.close, file)
            about = os.fstat(file)
            is_theirs = about.st_uid == os.fstat(at).st_uid and about.st_nlink == 1
            if not stat.S_ISREG(about.st_mode) or not is_theirs:
                return ""
            return os.pread(file, most_bytes, max(0, about.st_size - most_bytes) if end else 0).decode(
                "utf-8", "replace"
            )
        except OSError:
            return ""


def _opened(name: str, flags: int, folder: int | None) -> int:
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError as error:
        raise Conflict("Heliostat may not read this.", "Read it on the machine itself.") from error
    except (OSError, ValueError):  # among them ELOOP: it is a link
        raise _no_such_file() from None


def _parts(path: str) -> list[str]:
    parts = [part for part in path.split("/") if part]
    if len(parts) > _DEEPEST or any(part in (".", "..") or "\0" in part or len(part) > 255 for part in parts):
        raise _no_such_file()
    return parts


def _no_such_file() -> NotFound:
    return NotFound("There is no such file.", "Only plain files that the job left can be opened.")


def _make_entry(found: "os.DirEntry[str]") -> FileEntry | None:
    try:
        about = found.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile
    kind = "folder" if stat.S_ISDIR(about.st_mode) else "file" if stat.S_ISREG(about.st_mode) else "other"
    changed = min(max(0.0, about.st_mtime), _LAST_SECOND)  # its owner may have set any time
    return FileEntry(found.name, kind, about.st_size, datetime.fromtimestamp(changed, UTC))


def open_without_links(path: str, *names: str) -> int:
    """A descriptor of what lies there. Whoever owns a folder on the way may swap what is in it for a link: none is
    followed. Raises OSError."""
    found = os.open(path, _FLAGS)
    for name in names:
        above = found
        try:
            found = os.open(name, _FLAGS, dir_fd=above)
        finally:
            os.close(above)
    return found


def read_file_without_links(path: str, most_bytes: int, *names: str) -> bytes:
    """Of a file there, or below it, name by name; nothing if it is not there, no file, or has other names."""
    try:
        descriptor = open_without_links(path, *names)
    except OSError:
        return b""
    with open(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        return file.read(most_bytes) if stat.S_ISREG(found.st_mode) and found.st_nlink == 1 else b""
