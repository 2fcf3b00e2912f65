"""What people have uploaded, on disk: contents by their sha256, each person's apart from all others'.

A content has its name only once it is whole and proven: a crash leaves nothing but drafts. When something was last
of use is the time of its file.
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
from heliostat.models.uploads import FileTree, blob_path, text_to_tree, tree_path, tree_to_text, user_upload_folder
from heliostat.store import schema

_DAY_SECONDS = 86400.0


class UploadStore:
    """Those of one installation. Threads may share it."""

    def __init__(self, folder: Path) -> None:
        self._path = str(folder)
        self._lock = threading.Lock()  # what was just found must not be swept a moment later

    def list_missing_blobs(self, user: str, tree: FileTree) -> list[str]:
        """The contents this person has not sent yet. Those that are there are kept for another day."""
        folder = user_upload_folder(self._path, user)
        with self._lock:
            return [digest for digest, size in tree.blobs.items() if not _touched(blob_path(folder, digest), size)]

    def used_bytes(self, user: str) -> int:
        return sum(entry.stat().st_size for entry in _blobs(user_upload_folder(self._path, user)))

    def create_blob_writer(self, user: str, digest: str, size_bytes: int) -> "BlobWriter":
        return BlobWriter(user_upload_folder(self._path, user), digest, size_bytes)

    def add_tree(self, user: str, tree: FileTree) -> None:
        """Said again, it is kept longer. All its contents must be there."""
        folder = user_upload_folder(self._path, user)
        path = tree_path(folder, tree.id)
        with self._lock:
            if _touched(path):
                return
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            _write(f"{folder}/{uuid.uuid4()}.draft", path, tree_to_text(tree).encode())

    def find_tree(self, user: str, tree_id: str) -> FileTree | None:
        """None: there is none, or no more. It is kept for another while."""
        path = tree_path(user_upload_folder(self._path, user), tree_id)
        with self._lock:
            if not _touched(path):
                return None
            with open(path, encoding="utf-8") as file:
                return text_to_tree(file.read())

    def copy_tree_to_user(self, giver: str, taker: str, tree: FileTree) -> None:
        """The same for somebody else, without sending or copying anything. Raises FileNotFoundError."""
        source, target = user_upload_folder(self._path, giver), user_upload_folder(self._path, taker)
        for digest in tree.blobs:
            path = blob_path(target, digest)
            os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                os.link(blob_path(source, digest), path)
        self.add_tree(taker, tree)

    def remove_unused(self, before: float, needed: Collection[str]) -> int:
        """Removes trees last of use before then that nobody needs, and what only they had; how many contents."""
        if not os.path.isdir(self._path):
            return 0
        with os.scandir(self._path) as people:
            return sum(self._sweep_one(person.path, before, needed) for person in people)

    def _sweep_one(self, folder: str, before: float, needed: Collection[str]) -> int:
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
    """A content while it arrives: takes exactly as many bytes as were announced, and believes no digest."""

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
        """It has its name from here on. Raises BadRequest when it is not what it was said to be."""
        if self.remaining_bytes or self._sum.hexdigest() != self._digest:
            self.discard()
            raise BadRequest(
                f"What arrived as {self._digest[:12]}… is something else.",
                "It changed while it was sent; upload the folder again.",
            )
        self._file.flush()
        os.fdatasync(self._file.fileno())
        self._file.close()
        os.rename(self._path, self._target)

    def discard(self) -> None:
        self._file.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)


def _touched(path: str, size_bytes: int | None = None) -> bool:
    """Whether it is there, and whole; then it is of use now."""
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
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        yield from list(found)


def list_needed_uploads(conn: Connection) -> set[str]:
    """Those of jobs that are not over."""
    upload = func.json_extract(schema.jobs.c.spec, "$.upload")
    return set(conn.execute(select(upload).where(schema.jobs.c.ended_at.is_(None), upload.is_not(None))).scalars())
