"""One server for one home, whoever holds its lock for a moment."""

import fcntl
import threading
from pathlib import Path

import pytest

from heliostat import server
from heliostat.config import Home
from heliostat.errors import Conflict


def test_what_a_killed_server_was_just_starting_is_waited_for(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with open(home.lock_file, "a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        becomes_a_program = threading.Timer(0.2, held.close)
        becomes_a_program.start()
        with server._lock(home, 60):
            assert held.closed
        becomes_a_program.join()


def test_a_server_that_lives_keeps_its_home(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with server._lock(home), pytest.raises(Conflict, match="already running"), server._lock(home, 0.05):
        pass
