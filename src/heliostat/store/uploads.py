"""Uploaded code on disk: files by their SHA-256, separate for each user.

A file gets its final name only once it is complete and verified: a crash leaves only drafts. The modification time
of a file is the time of its last use.
"""

import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

from sqlalchemy import Connection, func, select

from heliostat.errors import BadRequest
from heliostat.models.schedules import ScheduleState
from heliostat.models.uploads import (
    FileTree,
    blob_path,
    counted_bytes,
    text_to_tree,
    tree_path,
    tree_to_text,
    user_upload_folder,
)
from heliostat.store import schema

_DAY_SECONDS = 86400.0
_LOCKED_FILES = 500  # at a time, so that others do not wait for a large upload
_MAX_CACHED_SIZES = 10_000


class UploadStore:
    """The uploads of an installation. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)
        self._lock = threading.Lock()  # a file that was just found must not be removed a moment later
        self._copy_bytes: dict[str, int] = {}  # by tree id

    def list_missing_blobs(self, user: str, tree: FileTree) -> list[str]:
        """Digests that this user has not uploaded yet. Existing files count as used now."""
        folder = user_upload_folder(self._path, user)
        blobs, missing = list(tree.blobs.items()), list[str]()
        for start in range(0, len(blobs), _LOCKED_FILES):
            with self._lock:
                missing += [
                    digest
                    for digest, size in blobs[start : start + _LOCKED_FILES]
                    if not _touch(blob_path(folder, digest), size)
                ]
        return missing

    def used_bytes(self, user: str) -> int:
        """What the user's uploads count in the quota."""
        folder = user_upload_folder(self._path, user)
        return sum(
            counted_bytes(entry.stat().st_size) for entry in (*_blobs(folder), *_entries(f"{folder}/trees"))
        )

    def create_blob_writer(self, user: str, digest: str, size_bytes: int) -> "BlobWriter":
        return BlobWriter(user_upload_folder(self._path, user), digest, size_bytes)

    def add_tree(self, user: str, tree: FileTree) -> None:
        """All its files must exist. An existing tree counts as used now."""
        folder = user_upload_folder(self._path, user)
        path = tree_path(folder, tree.id)
        with self._lock:
            if _touch(path):
                return
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(f"{folder}/{uuid.uuid4()}.draft", path, tree_to_text(tree).encode())

    def find_tree(self, user: str, tree_id: str) -> FileTree | None:
        """None: it does not exist, or no longer. It counts as used now."""
        path = tree_path(user_upload_folder(self._path, user), tree_id)
        with self._lock:
            if not _touch(path):
                return None
            with open(path, encoding="utf-8") as file:
                return text_to_tree(file.read())

    def find_copy_bytes(self, user: str, tree_id: str) -> int | None:
        """What a copy of this tree counts in quotas. None: it does not exist. It counts as used now."""
        if (known := self._copy_bytes.get(tree_id)) is not None:
            with self._lock:
                return known if _touch(tree_path(user_upload_folder(self._path, user), tree_id)) else None
        tree = self.find_tree(user, tree_id)
        if tree is None:
            return None
        if len(self._copy_bytes) >= _MAX_CACHED_SIZES:
            self._copy_bytes.clear()
        return self._copy_bytes.setdefault(tree_id, tree.copy_bytes)

    def copy_tree_to_user(self, source_user: str, target_user: str, tree: FileTree) -> None:
        """Give another user the tree by hard links, without copying. Raises FileNotFoundError."""
        source, target = user_upload_folder(self._path, source_user), user_upload_folder(self._path, target_user)
        for digest in tree.blobs:
            path = blob_path(target, digest)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(blob_path(source, digest), path)
        self.add_tree(target_user, tree)

    def remove_unused(self, before: float, needed: Collection[str]) -> int:
        """Remove trees last used before then that no job needs, and their files; return the number of files."""
        if not os.path.isdir(self._path):
            return 0
        with os.scandir(self._path) as folders:
            return sum(self._remove_unused_of_user(folder.path, before, needed) for folder in folders)

    def _remove_unused_of_user(self, folder: str, before: float, needed: Collection[str]) -> int:
        kept: set[str] = set()
        for entry in _entries(f"{folder}/trees"):
            with self._lock:
                if entry.name not in needed and os.stat(entry.path).st_mtime < before:
                    os.unlink(entry.path)
                    continue
            with open(entry.path, encoding="utf-8") as file:
                kept |= text_to_tree(file.read()).blobs.keys()
        yesterday = time.time() - _DAY_SECONDS
        unneeded = (entry for entry in _blobs(folder) if entry.name not in kept)
        drafts = (entry for entry in _entries(folder) if entry.name.endswith(".draft"))
        return sum(self._remove_older(entry.path, yesterday) for entry in (*unneeded, *drafts))

    def _remove_older(self, path: str, before: float) -> bool:
        with self._lock, contextlib.suppress(FileNotFoundError):
            if os.stat(path).st_mtime < before:
                os.unlink(path)
                return True
        return False


class BlobWriter:
    """Receives a file: exactly the announced number of bytes, and verifies the digest."""

    def __init__(self, folder: str, digest: str, size_bytes: int) -> None:
        self.remaining_bytes = size_bytes
        self._digest, self._target = digest, blob_path(folder, digest)
        self._sum = hashlib.sha256()
        os.makedirs(os.path.dirname(self._target), 0o700, exist_ok=True)
        self._path = f"{folder}/{uuid.uuid4()}.draft"
        self._file = open(self._path, "xb")  # noqa: SIM115 - closed by finish or drop

    def write(self, data: bytes) -> None:
        self.remaining_bytes -= len(data)
        self._sum.update(data)
        self._file.write(data)

    def finish(self) -> None:
        """Give it its final name. Raises BadRequest if its size or digest is wrong."""
        if self.remaining_bytes or self._sum.hexdigest() != self._digest:
            self.discard()
            raise BadRequest(
                f"The content of the uploaded file {self._digest[:12]}… does not match its digest.",
                "The file changed during the upload; upload the folder again.",
            )
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._file.close()
        os.rename(self._path, self._target)

    def discard(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def _touch(path: str, size_bytes: int | None = None) -> bool:
    """Whether it exists and is complete; if so, mark it as used now."""
    try:
        if size_bytes is not None and os.stat(path).st_size != size_bytes:
            return False
        os.utime(path)
    except FileNotFoundError:
        return False
    return True


def _write(draft: str, path: str, content: bytes) -> None:
    with open(draft, "xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.rename(draft, path)


def _blobs(folder: str) -> Iterator["os.DirEntry[str]"]:
    for entry in _entries(f"{folder}/blobs"):
        yield from _entries(entry.path)


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        yield from list(entries)


def count_unfinished_uploads(conn: Connection, user: str) -> dict[str, int]:
    """How many unfinished jobs of the user each of these uploads has."""
    of_job = func.json_extract(schema.jobs.c.spec, "$.upload")
    query = (
        select(of_job, func.count())
        .where(schema.jobs.c.user == user, schema.jobs.c.ended_at.is_(None), of_job.is_not(None))
        .group_by(of_job)
    )
    return {row[0]: row[1] for row in conn.execute(query)}


def list_needed_uploads(conn: Connection) -> set[str]:
    """Uploads of unfinished jobs, and of schedules that may fire again."""
    of_job = func.json_extract(schema.jobs.c.spec, "$.upload")
    of_schedule = func.json_extract(schema.schedules.c.request, "$.spec.upload")
    queries = (
        select(of_job).where(schema.jobs.c.ended_at.is_(None), of_job.is_not(None)),
        select(of_schedule).where(
            schema.schedules.c.state != ScheduleState.FINISHED.value, of_schedule.is_not(None)
        ),
    )
    return {upload for query in queries for upload in conn.execute(query).scalars()}
