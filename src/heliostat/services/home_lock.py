"""Changes to an installation that need it to be stopped."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager

from heliostat.config import Home
from heliostat.errors import Conflict


@contextmanager
def lock_out_server(home: Home, hint: str = "Stop it first: helio down.") -> Iterator[None]:
    """Raises Conflict if a server runs; none can start within the block."""
    home.path.mkdir(parents=True, exist_ok=True)
    with open(home.lock_file, "a", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Conflict(f"Heliostat is running on {home.path}.", hint) from None
        yield
