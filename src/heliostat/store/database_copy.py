"""Copies of the database: consistent while a server writes, including the write-ahead log."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from heliostat.errors import HeliostatError


def copy_database(path: Path, copy: Path) -> None:
    """With SQLite's online backup. The copy appears when it is complete, readable only by its owner."""
    draft = copy.with_name(copy.name + ".draft")
    draft.unlink(missing_ok=True)
    draft.touch(0o600)
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(draft)) as target:
            source.backup(target)
    except sqlite3.Error as error:
        draft.unlink(missing_ok=True)
        raise HeliostatError(
            f"{path} cannot be copied to {copy.parent}: {error}.",
            "Free space there, or check the database: helio doctor",
            code="database_not_copied",
        ) from error
    move_into_place(draft, copy)


def find_damage(path: Path) -> str | None:
    """What SQLite finds wrong with a database; None: nothing."""
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            verdict: str = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    except sqlite3.Error as error:
        return str(error)
    return None if verdict == "ok" else verdict


def move_into_place(draft: Path, path: Path) -> None:
    """Atomic, and durable afterwards."""
    with open(draft, "rb") as file:
        os.fsync(file.fileno())
    os.replace(draft, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
