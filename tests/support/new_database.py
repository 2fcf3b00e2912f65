"""A new database of the present schema, made once for all tests of a process and then copied.

Going through all migrations, or making all tables, takes longer than most tests do.
"""

import functools
import tempfile
from pathlib import Path

from heliostat.store.schema_upgrade import migrate


def create_database(path: Path) -> None:
    """As `migrate` leaves it."""
    path.write_bytes(_migrated())


@functools.cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        migrate(path := Path(folder) / "heliostat.db")
        return path.read_bytes()
