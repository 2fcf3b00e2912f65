"""Verifies and restores backups. A restored installation starts paused."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from heliostat.config import Home
from heliostat.config.load import find_configured_home
from heliostat.config.pause_file import pause
from heliostat.engines.folder_access import ENTER, NONE, grant_folder_access
from heliostat.errors import Conflict, HeliostatError
from heliostat.services.backups.archive import (
    DATABASE,
    KEYS,
    MANIFEST,
    SETTINGS,
    ArchivedFile,
    Manifest,
    copy_with_checksum,
    explain_damage,
    incomplete,
    is_log,
    read_files,
    read_manifest,
)
from heliostat.services.home_lock import lock_database, lock_out_server
from heliostat.store.database_copy import copy_database, find_damage, move_into_place
from heliostat.store.schema_upgrade import LATEST_REVISION
from heliostat.untrusted_folders import remove_folder

_UNPACKED, _DRAFT = ".restore-", ".draft"


@dataclass(frozen=True, slots=True)
class RestoredBackup:
    manifest: Manifest
    replaced: tuple[Path, ...]  # files of before, under their new names


def verify_backup(path: Path) -> Manifest:
    """Raises HeliostatError if it cannot be restored."""
    with tempfile.TemporaryDirectory() as folder:
        return _unpack(path, Path(folder), with_logs=False)


def restore_backup(home: Home, path: Path, *, settings: bool = True) -> RestoredBackup:
    """Nothing is changed unless the whole backup is in order. Replaced files are kept. It can be repeated.
    Without `settings`, `cluster.toml` stays as it is."""
    with lock_out_server(home), _unpacked(home, path) as (manifest, folder):
        if not settings:
            (folder / SETTINGS).unlink(missing_ok=True)
        home = _home_after(home, folder / SETTINGS, manifest)
        with lock_database(home):
            return RestoredBackup(manifest, tuple(_put_in_place(home, folder, manifest)))


def _home_after(home: Home, settings: Path, manifest: Manifest) -> Home:
    """With the database folder of the settings that will be in place. Raises Conflict if that belongs to another
    home: a drill must not replace the real database."""
    after = find_configured_home(home, settings if settings.exists() else home.config_file)
    if settings.exists() and after.database_folder and manifest.home != str(home.path):
        raise Conflict(
            f"With the settings of this backup, {home.path} would use the database of {manifest.home}"
            f" in {after.database_folder}.",
            "Keep the settings of this home: helio backup restore --without-settings",
        )
    return after


def _put_in_place(home: Home, folder: Path, manifest: Manifest) -> Iterator[Path]:
    """Pauses first. Yields the new names of the replaced files."""
    made = manifest.created_at.removesuffix("+00:00").replace("T", " ") + " UTC"
    pause(home, f"it was restored from the backup of {made}", after_restore=True)
    suffix = f".before-restore-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    for name in (*KEYS, SETTINGS):
        if (kept := _replace(folder / name, home.path / name, suffix)) is not None:
            yield kept
    yield from _replace_database(folder / DATABASE, home.database, suffix)
    _restore_logs(home, folder)


@contextmanager
def _unpacked(home: Home, path: Path) -> Iterator[tuple[Manifest, Path]]:
    _remove_drafts(home)
    with tempfile.TemporaryDirectory(prefix=_UNPACKED, dir=home.path) as folder:
        yield _unpack(path, Path(folder), with_logs=True), Path(folder)


def _remove_drafts(home: Home) -> None:
    """Those of an interrupted restore: they hold keys, the database and logs."""
    for folder in home.path.glob(f"{_UNPACKED}*"):
        remove_folder(str(folder))
    for name in (*KEYS, SETTINGS):
        (home.path / (name + _DRAFT)).unlink(missing_ok=True)


def _unpack(path: Path, folder: Path, *, with_logs: bool) -> Manifest:
    checksums: dict[str, str] = {}
    manifest: Manifest | None = None
    with explain_damage(path):
        for file in read_files(path):
            if file.name == MANIFEST:
                manifest = read_manifest(path, file, checksums)
            elif with_logs or not is_log(file.name):
                checksums[file.name] = _extract(file, folder)
            else:
                checksums[file.name] = copy_with_checksum(file.content, None)
    if manifest is None or checksums != manifest.checksums:
        raise incomplete(path)
    if damage := find_damage(folder / DATABASE):
        raise HeliostatError(
            f"The database in {path} is damaged: {damage}.", "Use another backup.", code="damaged_backup"
        )
    if manifest.schema > LATEST_REVISION:
        raise HeliostatError(
            f"{path} was made by a newer Heliostat ({manifest.version}, schema {manifest.schema}; this one knows"
            f" {LATEST_REVISION}).",
            "Upgrade Heliostat, or use an older backup.",
            code="newer_database",
        )
    return manifest


def _extract(file: ArchivedFile, folder: Path) -> str:
    target = folder / file.name
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(target, "xb", opener=_private) as out:
        digest = copy_with_checksum(file.content, out)
        if os.geteuid() == 0:
            os.fchown(out.fileno(), file.info.uid, file.info.gid)
        os.fchmod(out.fileno(), file.info.mode & 0o755)
    return digest


def _replace(source: Path, target: Path, suffix: str) -> Path | None:
    """Returns the new name of a different file that was there before."""
    if not source.exists():
        return None
    kept = None
    if target.exists() and target.read_bytes() != source.read_bytes():
        kept = target.with_name(target.name + suffix)
        _keep(target, kept)
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(target.name + _DRAFT)
    draft.unlink(missing_ok=True)
    with open(draft, "xb", opener=_private) as file:
        file.write(source.read_bytes())
        os.fchmod(file.fileno(), source.stat().st_mode & 0o777)
    move_into_place(draft, target)
    return kept


def _keep(file: Path, kept: Path) -> None:
    """Under a second name, until the first one is replaced. The name exists if a restore was just interrupted."""
    with contextlib.suppress(FileExistsError):
        os.link(file, kept)


def _replace_database(source: Path, database: Path, suffix: str) -> Iterator[Path]:
    """The write-ahead log of the former database must never be beside the new one."""
    kept = database.with_name(database.name + suffix)
    if database.exists():
        _keep(database, kept)
        yield kept
    for end in ("-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.rename(f"{database}{end}", f"{kept}{end}")
            yield Path(f"{kept}{end}")
    database.parent.mkdir(parents=True, exist_ok=True)
    copy_database(source, database)


def _restore_logs(home: Home, folder: Path) -> None:
    """Logs that still exist stay as they are."""
    for source in folder.glob("jobs/*/*"):
        target = home.path / source.relative_to(folder)
        if not home.jobs.exists():
            home.jobs.mkdir()
            home.jobs.chmod(0o711)
        if not target.parent.exists():
            target.parent.mkdir(0o700)
            grant_folder_access(str(target.parent), source.stat().st_uid, ENTER, others=NONE)
        with contextlib.suppress(FileExistsError):
            os.link(source, target, follow_symlinks=False)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
