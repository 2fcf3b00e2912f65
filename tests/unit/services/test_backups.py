"""Backups: complete, checked, and restored without losing what was there."""

import errno
import fcntl
import io
import os
import sqlite3
import tarfile
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import BackupSettings, Home, load_settings
from heliostat.config.pause_file import find_pause
from heliostat.engines.log_holes import OutputReader
from heliostat.errors import Conflict, HeliostatError
from heliostat.loops.backup_maker import BackupMaker
from heliostat.services.backups.archive import list_backups
from heliostat.services.backups.create import create_backup, remove_old_backups
from heliostat.services.backups.restore import restore_backup, verify_backup
from heliostat.store.schema_upgrade import migrate


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.jobs.mkdir(parents=True)
    home.config_file.write_text("[server]\nport = 0\n")
    home.notification_key.write_bytes(b"old key")
    migrate(home.database)
    write_department(home, "before")
    return home


def write_department(home: Home, name: str) -> None:
    with closing(sqlite3.connect(home.database)) as database, database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("INSERT INTO departments (name, share) VALUES (?, 1)", (name,))


def departments(home: Home) -> list[str]:
    with closing(sqlite3.connect(home.database)) as database:
        return [name for (name,) in database.execute("SELECT name FROM departments ORDER BY name")]


def test_a_backup_holds_what_was_committed_while_another_transaction_is_open(home: Home, tmp_path: Path) -> None:
    with closing(sqlite3.connect(home.database, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("INSERT INTO departments (name, share) VALUES ('open', 1)")
        path = create_backup(home, tmp_path / "backups")
    assert path.stat().st_mode & 0o777 == 0o600
    assert verify_backup(path).home == str(home.path)
    restore_backup(other := Home(tmp_path / "other"), path)
    assert "before" in departments(other)
    assert "open" not in departments(other)
    assert [path.name for path in (tmp_path / "backups").iterdir()] == [path.name]


def test_a_restore_keeps_what_it_replaces_and_pauses(home: Home, tmp_path: Path) -> None:
    path = create_backup(home, tmp_path / "backups")
    write_department(home, "later")
    home.notification_key.write_bytes(b"new key")
    restored = restore_backup(home, path)
    assert "later" not in departments(home)
    assert home.notification_key.read_bytes() == b"old key"
    paused = find_pause(home)
    assert paused is not None
    assert paused.after_restore
    kept = {path.name.partition(".before-restore")[0]: path for path in restored.replaced}
    assert kept["notification.key"].read_bytes() == b"new key"
    with closing(sqlite3.connect(kept["heliostat.db"])) as database:
        assert ("later",) in database.execute("SELECT name FROM departments").fetchall()
    assert "cluster.toml" not in kept


def test_a_damaged_or_foreign_file_is_refused_and_changes_nothing(home: Home, tmp_path: Path) -> None:
    path = create_backup(home, tmp_path / "backups")
    data = path.read_bytes()
    for number, damaged in enumerate([data[: -len(data) // 10], data[: len(data) // 2], b"no archive", b""]):
        (bad := tmp_path / f"{number}.tar.gz").write_bytes(damaged)
        with pytest.raises(HeliostatError, match="cannot be used"):
            restore_backup(home, bad)
    for number, change in enumerate([changed_content, without_manifest, with_a_path_outside]):
        change(path, bad := tmp_path / f"changed-{number}.tar.gz")
        with pytest.raises(HeliostatError, match=r"differs|end is missing|is not a backup"):
            restore_backup(home, bad)
    assert find_pause(home) is None
    assert "before" in departments(home)
    assert not (tmp_path / "outside").exists()


def changed_content(path: Path, to: Path) -> None:
    rewrite(path, to, lambda name, data: data.replace(b"port = 0", b"port = 1"))


def without_manifest(path: Path, to: Path) -> None:
    rewrite(path, to, lambda name, data: None if name == "manifest.json" else data)


def with_a_path_outside(path: Path, to: Path) -> None:
    rewrite(path, to, lambda name, data: data, extra="../outside")


def rewrite(path: Path, to: Path, change, extra: str = "") -> None:  # type: ignore[no-untyped-def]
    with tarfile.open(path) as source, tarfile.open(to, "w:gz") as target:
        for info in [*source, *([tarfile.TarInfo(extra)] if extra else [])]:
            content = source.extractfile(info) if info.name != extra else None
            data = change(info.name, content.read() if content else b"")
            if data is not None:
                info.size = len(data)
                target.addfile(info, io.BytesIO(data))


def test_logs_are_kept_on_request_and_links_in_their_place_are_not_followed(home: Home, tmp_path: Path) -> None:
    folder = home.jobs / "12"
    folder.mkdir()
    (folder / "1.stdout").write_text("epoch 1\n")
    (folder / "1.stderr").symlink_to(home.notification_key)
    (folder / "2.stdout").mkdir()
    os.mkfifo(folder / "2.stderr")
    (folder / "checkpoint").write_text("large")
    path = create_backup(home, tmp_path / "backups", logs=True)
    restore_backup(other := Home(tmp_path / "other"), path)
    assert [entry.name for entry in (other.jobs / "12").iterdir()] == ["1.stdout"]
    assert (other.jobs / "12").stat().st_mode & 0o007 == 0
    assert (other.jobs / "12" / "1.stdout").read_text() == "epoch 1\n"
    (folder / "1.stdout").write_text("epoch 1\nepoch 2\n")
    restore_backup(home, path)
    assert (folder / "1.stdout").read_text() == "epoch 1\nepoch 2\n"  # a newer log stays


def test_holes_of_logs_are_left_out(home: Home, tmp_path: Path) -> None:
    (home.jobs / "12").mkdir()
    log = home.jobs / "12" / "1.stdout"
    log.write_bytes(b"first" + b"\n" * (2**16 - 5))
    for size in (2**40, 2**41):
        os.truncate(log, size)
        with log.open("ab") as file:
            file.write(b"more\n")
    os.truncate(log, 2**42)
    path = create_backup(home, tmp_path / "backups", logs=True)
    restore_backup(other := Home(tmp_path / "other"), path)
    output = (other.jobs / "12" / "1.stdout").read_bytes()
    assert output.startswith(b"first\n")
    assert output.count(b"more\n") == 2
    assert len(output) < 2**20


@pytest.mark.parametrize("step", ["__init__", "read"])
def test_an_error_in_one_log_does_not_end_the_backup(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    (home.jobs / "12").mkdir()
    (home.jobs / "12" / "1.stdout").write_text("epoch 1\n")

    def fail(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(OutputReader, step, fail)
    path = create_backup(home, tmp_path / "backups", logs=True)
    restore_backup(other := Home(tmp_path / "other"), path)
    assert "before" in departments(other)


def test_nothing_is_restored_under_a_running_server(home: Home, tmp_path: Path) -> None:
    path = create_backup(home, tmp_path / "backups")
    with open(home.lock_file, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Conflict, match="is running"):
            restore_backup(home, path)


def test_the_newest_backups_are_kept(tmp_path: Path) -> None:
    names = [f"heliostat-2026111{day}T030000Z.tar.gz" for day in range(5)]
    for name in [*names, "notes.txt"]:
        (tmp_path / name).touch()
    remove_old_backups(tmp_path, 2)
    assert [path.name for path in list_backups(tmp_path)] == names[:2:-1]
    assert (tmp_path / "notes.txt").exists()


def test_a_backup_is_made_when_the_newest_is_old_enough(home: Home) -> None:
    maker = BackupMaker(home, settings := BackupSettings(every_hours=24, keep=1))
    maker.make_if_due()
    (first,) = list_backups(home.backups)
    maker.make_if_due()
    assert list_backups(home.backups) == [first]
    old = first.rename(first.with_name("heliostat-20200101T000000Z.tar.gz"))
    os.utime(old, (0, datetime(2020, 1, 1, tzinfo=UTC).timestamp()))
    BackupMaker(home, replace(settings, every_hours=0)).make_if_due()
    assert list_backups(home.backups) == [old]
    maker.make_if_due()
    (second,) = list_backups(home.backups)
    assert second != old


def test_of_a_damaged_database_no_backup_is_made_and_none_removed(home: Home) -> None:
    kept = create_backup(home, home.backups)
    page = home.database.read_bytes()
    home.database.write_bytes(page[:8192] + b"x" * 4096 + page[12288:])
    with pytest.raises(HeliostatError, match=r"damaged|cannot be copied"):
        create_backup(home, home.backups)
    assert [path.name for path in home.backups.iterdir()] == [kept.name]


def test_a_drill_never_replaces_a_database_that_has_its_own_folder(home: Home, tmp_path: Path) -> None:
    home.config_file.write_text(f'[storage]\ndatabase_folder = "{tmp_path}/disk"\n')
    path = create_backup(home, tmp_path / "backups")
    restore_backup(home, path)
    assert "before" in departments(load_settings(home).home)
    assert (tmp_path / "disk" / "heliostat.db").exists()
    write_department(load_settings(home).home, "later")
    drill = Home(tmp_path / "drill")
    with pytest.raises(Conflict, match="would use the database"):
        restore_backup(drill, path)
    restore_backup(drill, path, settings=False)
    assert "later" not in departments(drill)
    assert "later" in departments(load_settings(home).home)


@pytest.mark.parametrize("step", range(1, 6))
def test_an_interrupted_restore_leaves_a_database_and_can_be_repeated(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    path = create_backup(home, tmp_path / "backups")
    write_department(home, "later")
    home.notification_key.write_bytes(b"new key")
    calls = 0

    def fail_once(source: object, target: object) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise OSError(28, "No space left on device")
        rename(source, target)

    rename = os.rename  # as os.replace, which is replaced here
    monkeypatch.setattr(os, "replace", fail_once)
    if step <= 4:  # the pause, the key, the settings, the database
        with pytest.raises(OSError, match="No space"):
            restore_backup(home, path)
        assert "later" in departments(home)
    restore_backup(home, path)
    assert find_pause(home) is not None
    assert "later" not in departments(home)


def test_a_killed_restore_leaves_no_readable_key_and_the_next_one_removes_its_drafts(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = create_backup(home, tmp_path / "backups")
    draft, forgotten = home.path / "notification.key.draft", home.path / "session.key.draft"
    for left in (draft, forgotten):
        left.write_bytes(b"of an earlier restore")
        left.chmod(0o644)
    (unpacked := home.path / ".restore-killed" / "jobs").mkdir(parents=True)
    (unpacked.parent / "session.key").write_bytes(b"key")
    modes = []

    def fchmod(descriptor: int, mode: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(draft):
            modes.append(os.fstat(descriptor).st_mode & 0o777)
        change_mode(descriptor, mode)

    change_mode = os.fchmod
    monkeypatch.setattr(os, "fchmod", fchmod)
    restore_backup(home, path)
    assert modes == [0o600]
    assert [entry for entry in home.path.iterdir() if ".draft" in entry.name or ".restore" in entry.name] == []
