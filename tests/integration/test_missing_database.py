"""A server whose database is missing: it must not stop jobs that it does not know."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.config import Home, load_settings
from heliostat.doctor import check_installation
from integration.running_server import RunningServer, wait_for


@pytest.fixture
def server() -> Iterator[RunningServer]:
    server = RunningServer()
    yield server
    server.remove()


@pytest.mark.parametrize("is_empty", [False, True])
def test_a_server_without_its_database_does_not_start_and_its_jobs_continue(
    server: RunningServer, tmp_path: Path, is_empty: bool
) -> None:
    go_on = tmp_path / "go-on"
    job = server.submit(command=["sh", "-c", f"until test -e {go_on}; do sleep 0.1; done; echo ended"], memory=64)
    wait_for(lambda: server.show(job)["state"] == "running", "the job to run")
    server.stop()
    database, kept = server.home / "heliostat.db", tmp_path / "heliostat.db"
    database.rename(kept)
    if is_empty:
        database.touch()
    with pytest.raises(AssertionError, match=r"heliostat\.db is missing or empty"):
        server.start()
    (told,) = (
        finding for finding in check_installation(load_settings(Home(server.home))) if finding.check == "database"
    )
    assert (told.level, "is missing or empty" in told.message) == ("problem", True)
    kept.replace(database)
    server.start()
    go_on.touch()
    assert server.finished(job)["state"] == "completed"
    assert server.output(job) == "ended\n"
