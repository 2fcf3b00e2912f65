"""Creates backups, also while a server runs, and removes old ones."""

import fcntl
import hashlib
import io
import os
import socket
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from heliostat import __version__
from heliostat.config import Home
from heliostat.engines.log_holes import OutputReader
from heliostat.errors import Conflict, HeliostatError
from heliostat.services.backups.archive import DATABASE, KEYS, MANIFEST, SETTINGS, Manifest, is_log, list_backups
from heliostat.store.database_copy import copy_database, find_damage, move_into_place
from heliostat.store.schema_upgrade import database_revision
from heliostat.untrusted_folders import remove_folder

_DRAFT = ".draft-"


def create_backup(home: Home, folder: Path, *, logs: bool = False) -> Path:
    """Returns the new file, readable only by its owner. Raises HeliostatError; then there is no new file."""
    if not home.database.exists():
        raise Conflict(f"There is no database {home.database}.", "Set HELIOSTAT_HOME to the data directory.")
    now = datetime.now(UTC)
    try:
        with _own_folder(folder) as work:
            copy_database(home.database, work / DATABASE)
            if damage := find_damage(work / DATABASE):
                raise HeliostatError(
                    f"{home.database} is damaged: {damage}.",
                    "No backup was made, and none was removed. Restore the newest one: helio backup restore",
                    code="damaged_database",
                )
            with open(work / "archive", "wb", opener=_private) as file:
                _write(file, home, work / DATABASE, now, logs)
            path = folder / f"heliostat-{now:%Y%m%dT%H%M%SZ}.tar.gz"
            move_into_place(work / "archive", path)
            return path
    except OSError as error:
        raise HeliostatError(
            f"No backup could be made in {folder}: {error.strerror or error}.",
            "Choose another folder: backup.folder in cluster.toml, or helio backup create --to FOLDER.",
            code="no_backup",
        ) from error


def remove_old_backups(folder: Path, keep: int) -> list[Path]:
    old = list_backups(folder)[keep:]
    for path in old:
        path.unlink(missing_ok=True)
    return old


@contextmanager
def _own_folder(folder: Path) -> Iterator[Path]:
    """A folder for drafts; those of an interrupted backup are removed."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for left in folder.glob(f"{_DRAFT}*"):
            remove_folder(str(left))
        with tempfile.TemporaryDirectory(prefix=_DRAFT, dir=folder) as work:
            yield Path(work)
    except BlockingIOError:
        raise Conflict(f"Another backup is being made in {folder}.", "Wait until it is complete.") from None
    finally:
        os.close(descriptor)


def _write(file: IO[bytes], home: Home, database: Path, now: datetime, logs: bool) -> None:
    checksums: dict[str, str] = {}
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in _files(home, database, logs):
            with content:
                if (checksum := _add(archive, name, content)) is not None:
                    checksums[name] = checksum
        manifest = Manifest(
            now.isoformat(timespec="seconds"),
            __version__,
            database_revision(database) or "",
            socket.gethostname(),
            str(home.path),
            checksums,
        ).to_json()
        info = tarfile.TarInfo(MANIFEST)
        info.size, info.mode, info.mtime = len(manifest), 0o600, int(now.timestamp())
        archive.addfile(info, io.BytesIO(manifest))


def _files(home: Home, database: Path, logs: bool) -> Iterator[tuple[str, IO[bytes]]]:
    """Open: the caller closes each."""
    yield DATABASE, database.open("rb")
    for name in (*KEYS, SETTINGS):
        with suppress(FileNotFoundError):
            yield name, (home.path / name).open("rb")
    if logs and home.jobs.is_dir():
        for folder in os.scandir(home.jobs):
            if folder.name.isdecimal() and folder.is_dir(follow_symlinks=False):
                for name in _log_names(folder):
                    if content := _open_log(home.path / name):
                        yield name, content


def _log_names(folder: os.DirEntry[str]) -> list[str]:
    """None if the folder is gone."""
    with suppress(OSError):
        return [name for entry in os.listdir(folder.path) if is_log(name := f"jobs/{folder.name}/{entry}")]
    return []


def _open_log(path: Path) -> IO[bytes] | None:
    """None: it is gone, or not a regular file. It belongs to a user."""
    try:
        file = open(path, "rb", opener=_without_following)  # noqa: SIM115 - returned
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None


def _add(archive: tarfile.TarFile, name: str, content: IO[bytes]) -> str | None:
    """Returns the checksum. None: a log that cannot be read is left out."""
    info = archive.gettarinfo(arcname=name, fileobj=content)
    info.type, info.linkname = tarfile.REGTYPE, ""  # also if it has several names
    output: OutputReader | IO[bytes] = content
    if is_log(name):  # which may be a terabyte of holes
        try:
            output = OutputReader(content.fileno())
        except OSError:
            return None
        info.size = output.size
    reader = _Reader(output, info.size)
    archive.addfile(info, reader)  # type: ignore[arg-type] # only read
    return reader.digest.hexdigest()


class _Reader:
    """Exactly this many bytes, also of a log that grows or shrinks meanwhile; and their checksum. After
    an error a log is zeros: it must not end the backup."""

    def __init__(self, content: OutputReader | IO[bytes], size: int) -> None:
        self._content, self._left, self.digest = content, size, hashlib.sha256()

    def read(self, size: int) -> bytes:
        data = self._read(min(size, self._left)).ljust(min(size, self._left), b"\0")
        self._left -= len(data)
        self.digest.update(data)
        return data

    def _read(self, size: int) -> bytes:
        try:
            return self._content.read(size)
        except OSError:
            if not isinstance(self._content, OutputReader):
                raise
            self._content = io.BytesIO()
            return b""


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _without_following(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
