"""Changes to an installation that need it to be stopped."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from heliostat.config import Home
from heliostat.errors import Conflict

_HINT = "Stop it first: helio down."


@contextmanager
def lock_out_server(home: Home, hint: str = _HINT) -> Iterator[None]:
    """Raises Conflict if a server runs; none can start within the block."""
    with _lock(home.lock_file, hint):
        yield


@contextmanager
def lock_database(home: Home) -> Iterator[None]:
    """Raises Conflict if a server of any home uses this database. Within `lock_out_server`."""
    if home.database_folder is None:
        yield
        return
    with _lock(home.database_lock_file, _HINT):
        yield


@contextmanager
def _lock(path: Path, hint: str) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(path, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"Heliostat is running on {path.parent}.", hint) from None
        yield
