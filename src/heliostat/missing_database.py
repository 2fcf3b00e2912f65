"""A data directory that has files of jobs and no database. For the start of the server, and for the doctor."""

import os
from collections.abc import Iterator
from pathlib import Path

from heliostat.config import Home
from heliostat.errors import HeliostatError
from heliostat.store.schema_upgrade import database_revision


def require_database_of_jobs(home: Home) -> None:
    """Without its database, a server would stop the jobs that run: it would not know them."""
    is_empty = not home.database.exists() or database_revision(home.database) is None
    if is_empty and (highest_job_id(home.jobs) or any(_names(home.attempts))):
        raise HeliostatError(
            f"{home.database} is missing or empty, but {home.path} has files of jobs. These may still run.",
            f"Restore a backup: helio backup restore. If storage.database_folder was changed, move heliostat.db"
            f" there. To start without these jobs: wait until they have ended, then move"
            f" {home.jobs} and {home.attempts} to another place.",
            code="missing_database",
        )


def highest_job_id(jobs: Path) -> int:
    """Of the jobs that left files here: a database restored from a backup must not reuse their ids."""
    return max((int(name) for name in _names(jobs) if name.isdecimal()), default=0)


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as entries:
            yield from (entry.name for entry in entries)
    except FileNotFoundError:
        return
