"""The format of a backup: one compressed tar file.

It contains the database, the keys, `cluster.toml`, optionally the logs of jobs, and at the end `manifest.json`
with a checksum of each: a backup without its manifest is incomplete.
"""

import gzip
import hashlib
import json
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from heliostat.errors import HeliostatError, Invalid

MANIFEST, DATABASE = "manifest.json", "heliostat.db"
KEYS = ("history.key", "notification.key", "session.key")
SETTINGS = "cluster.toml"
_LOG = re.compile(r"jobs/\d{1,19}/\d{1,9}\.(stdout|stderr|order)", re.ASCII)
_NAME = re.compile(r"heliostat-\d{8}T\d{6}Z\.tar\.gz", re.ASCII)
_FORMAT = 1
_CHUNK_BYTES = 1 << 20
_MAX_MANIFEST_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Manifest:
    created_at: str  # ISO 8601
    version: str  # of Heliostat
    schema: str  # of the database
    host: str
    home: str
    checksums: dict[str, str]  # SHA-256 of each file
    format: int = _FORMAT

    def to_json(self) -> bytes:
        return json.dumps(asdict(self), indent=1).encode()


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file of the archive. Read it before the next one."""

    name: str
    info: tarfile.TarInfo
    content: IO[bytes]


def list_backups(folder: Path) -> list[Path]:
    """Newest first."""
    try:
        names = sorted((path.name for path in folder.iterdir() if _NAME.fullmatch(path.name)), reverse=True)
    except FileNotFoundError:
        return []
    return [folder / name for name in names]


def is_log(name: str) -> bool:
    return _LOG.fullmatch(name) is not None


def read_files(path: Path) -> Iterator[ArchivedFile]:
    """All files, the manifest last. To be read within `explain_damage`."""
    with tarfile.open(path, "r|gz") as archive:
        for info in archive:
            content = archive.extractfile(info) if info.isreg() else None
            if content is None or not _is_expected(info.name):
                raise Invalid(
                    f"{path} is not a backup: it contains {info.name!a}.", "`helio backup create` makes one."
                )
            yield ArchivedFile(info.name, info, content)


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise _broken(path, str(error) or "its end is missing") from error
    except OSError as error:
        raise HeliostatError(
            f"The backup {path} cannot be read: {error.strerror or error}.", "Check the path and the free space."
        ) from error


def read_manifest(path: Path, file: ArchivedFile, checksums: dict[str, str]) -> Manifest:
    """Raises HeliostatError if it does not belong to these files."""
    try:
        values = json.loads(file.content.read(_MAX_MANIFEST_BYTES))
        if values["format"] != _FORMAT:
            raise Invalid(f"{path} was made by a newer Heliostat ({values['version']}).", "Use that version.")
        manifest = Manifest(**values)
    except (ValueError, KeyError, TypeError) as error:
        raise _broken(path, "its manifest cannot be read") from error
    if changed := sorted(
        name for name in {*manifest.checksums, *checksums} if manifest.checksums.get(name) != checksums.get(name)
    ):
        raise _broken(path, f"{changed[0]} differs from the manifest")
    if DATABASE not in checksums:
        raise _broken(path, "it has no database")
    return manifest


def copy_with_checksum(source: IO[bytes], target: IO[bytes] | None) -> str:
    digest = hashlib.sha256()
    while data := source.read(_CHUNK_BYTES):
        digest.update(data)
        if target is not None:
            target.write(data)
    return digest.hexdigest()


def incomplete(path: Path) -> HeliostatError:
    return _broken(path, "its end is missing")


def _is_expected(name: str) -> bool:
    return name in (MANIFEST, DATABASE, SETTINGS, *KEYS) or is_log(name)


def _broken(path: Path, cause: str) -> HeliostatError:
    return HeliostatError(
        f"The backup {path} cannot be used: {cause}.", "Use another backup.", code="damaged_backup"
    )
