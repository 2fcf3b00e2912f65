"""What a job left in its private folder. Its owner may have put anything there: all goes through descriptors,
follows no link, and reads plain files of the owner only."""

import contextlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from io import FileIO
from itertools import islice

from heliostat.engines.contract import KeepsLogs
from heliostat.errors import Conflict, NotFound
from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context
from heliostat.services.rights import inspectable_job

MOST_ENTRIES = 500
CHUNK_BYTES = 256 * 1024
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DEEPEST = 64
_LAST_SECOND = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    kind: str  # folder, file, other: what is neither cannot be opened
    size_bytes: int
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Folder:
    path: str  # below the job's own folder; empty: that one
    entries: tuple[Entry, ...]  # folders first, then by name
    is_cut: bool = False  # there are more


@dataclass(frozen=True, slots=True)
class OpenedFile:
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


def has_folder(context: Context, job: Job) -> bool:
    """Whether it runs in a folder of its own, and that exists."""
    root = _root(context, job)
    return root is not None and os.path.isdir(root) and not os.path.islink(root)


def list_files(context: Context, caller: Caller, job_id: JobId, path: str) -> Folder:
    """For those who may inspect the job."""
    job = inspectable_job(context, caller, job_id)
    with _open_folder(context, job, _parts(path)) as (folder, _), os.scandir(folder) as found:
        entries = [entry for one in islice(found, MOST_ENTRIES + 1) if (entry := _entry(one))]
    entries.sort(key=lambda entry: (entry.kind != "folder", entry.name))
    return Folder("/".join(_parts(path)), tuple(entries[:MOST_ENTRIES]), len(entries) > MOST_ENTRIES)


def open_file(context: Context, caller: Caller, job_id: JobId, path: str) -> OpenedFile:
    """For those who may inspect the job: a plain file of its owner."""
    job = inspectable_job(context, caller, job_id)
    *above, name = _parts(path) or [""]
    with _open_folder(context, job, above) as (folder, owner):
        descriptor = _opened(name, _FILE_FLAGS, folder)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_uid != owner:
        os.close(descriptor)
        raise _no_such_file()
    return OpenedFile(name, about.st_size, FileIO(descriptor, "rb"))


def _root(context: Context, job: Job) -> str | None:
    if job.spec.workdir is not None or not isinstance(context.engine, KeepsLogs):
        return None
    return str(context.engine.log_path(job.id, max(job.attempt, 1), "stdout").with_name("work"))


@contextlib.contextmanager
def _open_folder(context: Context, job: Job, parts: list[str]) -> Iterator[tuple[int, int]]:
    """Its descriptor, and whose the job's folder is."""
    root = _root(context, job)
    if root is None:
        raise NotFound(f"Job {job.id} has no folder of its own.", "Its files are in its working directory.")
    at = _opened(root, _FOLDER_FLAGS, None)
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


def _entry(found: "os.DirEntry[str]") -> Entry | None:
    try:
        about = found.stat(follow_symlinks=False)
    except OSError:
        return None  # gone meanwhile
    kind = "folder" if stat.S_ISDIR(about.st_mode) else "file" if stat.S_ISREG(about.st_mode) else "other"
    changed = min(max(0.0, about.st_mtime), _LAST_SECOND)  # its owner may have set any time
    return Entry(found.name, kind, about.st_size, datetime.fromtimestamp(changed, UTC))
