"""A server with the database of a backup: jobs that started since are neither killed unasked nor run twice."""

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliostat.config import Home, load_settings
from heliostat.services.backups.create import create_backup
from heliostat.services.backups.restore import restore_backup
from integration.running_server import RunningServer, wait_for


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """Its database has a folder of its own."""
    folder = tmp_path_factory.mktemp("disk") / "database"
    server = RunningServer(f'[storage]\ndatabase_folder = "{folder}"\n')
    assert not (server.home / "heliostat.db").exists()
    yield server
    server.remove()


def submit_until(server: RunningServer, sign: Path, **more: object) -> int:
    """A job that runs until the sign exists."""
    command = ["sh", "-c", f"echo began; until test -e {sign}; do sleep 0.1; done; echo ended"]
    return server.submit(command=command, memory=64, **more)


def wait_for_state(server: RunningServer, job: int, state: str) -> None:
    wait_for(lambda: server.show(job)["state"] == state, f"job {job} to be {state}", lambda: server.show(job))


def configured_home(server: RunningServer) -> Home:
    return load_settings(Home(server.home)).home


def copy_database(server: RunningServer, to: Path) -> None:
    with (
        closing(sqlite3.connect(configured_home(server).database)) as source,
        closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)


def put_back(server: RunningServer, kept: Path) -> None:
    database = configured_home(server).database
    for suffix in ("-wal", "-shm"):
        database.with_name(f"heliostat.db{suffix}").unlink(missing_ok=True)
    shutil.copy(kept, database)


def left_jobs(server: RunningServer) -> list[dict[str, str]]:
    findings = server.ask("GET", "/doctor").json["findings"]
    return [finding for finding in findings if finding["check"] == "left jobs"]


def test_jobs_that_an_older_database_does_not_know_go_on_until_an_admin_decides(
    server: RunningServer, tmp_path: Path
) -> None:
    kept, go_on, later = tmp_path / "kept.db", tmp_path / "go-on", tmp_path / "later"
    waiting = submit_until(server, go_on, held=True)
    copy_database(server, kept)
    server.ask("POST", f"/jobs/{waiting}/release")
    unknown = submit_until(server, later)
    for job in (waiting, unknown):
        wait_for_state(server, job, "running")
    server.stop()
    put_back(server, kept)
    server.start()

    paused = server.ask("GET", "/pause").json
    assert [job["job_id"] for job in paused["unknown_jobs"]] == [unknown]
    assert server.ask("GET", "/status").json["paused"]["reason"] == "jobs run that the database does not know"
    assert "Heliostat is paused" in server.ask("GET", "/jobs").headers["heliostat-notice"]
    new = server.submit(command=["true"], memory=64)
    assert "paused" in server.show(new)["reason"]
    for answer in (
        server.ask("GET", f"/jobs/{new}/why?what_if=true").json,
        server.ask("POST", "/when", {"command": ["true"], "memory": 64}).json,
    ):
        assert (answer["forecast"], answer["no_forecast_reason"]) == (None, "after `helio resume`")
        assert not answer.get("starts_now")
    refused = server.ask("POST", "/resume", {})
    assert (refused.status, refused.error["code"]) == (409, "unknown_jobs")
    assert f"job {unknown}" in refused.error["message"]

    assert server.ask("POST", "/resume", {"unknown_jobs": "leave"}).status == 204
    assert server.finished(new)["state"] == "completed"
    wait_for_state(server, waiting, "running")
    server.stop()
    server.start()  # what was decided stays decided
    assert server.ask("GET", "/status").json["paused"] is None
    (left,) = left_jobs(server)
    assert f"job {unknown} " in left["message"]
    pid = int(left["hint"].removeprefix("To stop it: kill ").split()[0])
    assert str(later) in Path(f"/proc/{pid}/cmdline").read_text()
    later.touch()
    log = server.home / "jobs" / str(unknown) / "1.stdout"
    wait_for(lambda: log.read_text() == "began\nended\n", "the job that was left alone to end")
    wait_for(lambda: not left_jobs(server), "the doctor to see that it has ended")
    go_on.touch()
    assert server.finished(waiting)["state"] == "completed"
    assert server.output(waiting) == "began\nended\n"


def test_jobs_that_the_database_does_not_know_can_be_stopped(server: RunningServer, tmp_path: Path) -> None:
    kept, never = tmp_path / "kept.db", tmp_path / "never"
    copy_database(server, kept)
    unknown = submit_until(server, never)
    wait_for_state(server, unknown, "running")
    claim = server.home / "attempts" / f"{unknown}.1.started"
    pid = int(claim.read_text().split()[0])
    server.stop()
    put_back(server, kept)
    server.start()
    assert server.ask("POST", "/resume", {"unknown_jobs": "stop"}).status == 204
    wait_for(lambda: not Path(f"/proc/{pid}").exists(), "its wrapper to end")


def test_a_job_that_ran_since_the_backup_is_not_run_again_unasked(server: RunningServer, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    count = ["sh", "-c", f"echo run >>{runs}"]
    job = server.submit(command=count, memory=64, held=True)
    backup = create_backup(configured_home(server), tmp_path)
    server.ask("POST", f"/jobs/{job}/release")
    server.finished(job)
    server.stop()
    for claim in (server.home / "attempts").glob(f"{job}.1.*"):
        claim.unlink()  # as some minutes after its end
    restore_backup(Home(server.home), backup)
    server.start()
    assert "backup" in server.ask("GET", "/status").json["paused"]["reason"]
    assert server.ask("POST", "/resume", {}).status == 204
    assert server.show(job)["state"] == "held"
    assert runs.read_text() == "run\n"
    server.ask("POST", f"/jobs/{job}/release")
    assert server.finished(job)["attempt"] == 2
    assert runs.read_text() == "run\nrun\n"


def test_a_restore_drill_elsewhere_touches_no_job_and_runs_none_again(
    server: RunningServer, tmp_path: Path
) -> None:
    runs, go_on = tmp_path / "runs", tmp_path / "go-on"
    command = ["sh", "-c", f"echo run >>{runs}; until test -e {go_on}; do sleep 0.1; done"]
    running = server.submit(command=command, memory=64)
    wait_for_state(server, running, "running")
    wait_for(runs.exists, "the job to begin")
    waiting = server.submit(command=["true"], memory=64, held=True)
    backup = create_backup(configured_home(server), tmp_path)
    drill = RunningServer()
    try:
        drill.stop()
        restore_backup(Home(drill.home), backup, settings=False)
        drill.start()
        assert drill.ask("GET", "/status").json["paused"]
        assert drill.show(running)["state"] == "running"  # as in the backup
        drill.ask("POST", f"/jobs/{waiting}/release")
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        schedule = {"name": "often", "schedule": f"R/{now}/PT10S", "job": {"command": ["true"], "memory": 64}}
        assert drill.ask("POST", "/schedules", schedule).status == 201
        assert drill.show(waiting)["state"] == "pending"
        assert drill.ask("GET", "/schedules/often/firings").json["items"] == []
        assert drill.ask("POST", "/resume", {}).status == 204
        wait_for(lambda: drill.ask("GET", "/schedules/often/firings").json["items"], "the schedule to fire")
        assert drill.finished(running)["state"] == "lost"
        assert drill.finished(waiting)["state"] == "completed"
    finally:
        drill.remove()
    assert runs.read_text() == "run\n"
    assert server.show(running)["state"] == "running"
    go_on.touch()
    assert server.finished(running)["state"] == "completed"
