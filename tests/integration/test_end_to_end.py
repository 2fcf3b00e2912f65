"""The whole product as people use it: the real server, the real command line, the real client."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat import Client
from heliostat.engines.local.processes import is_running, process_start_time
from heliostat.models import JobState
from support.server_process import ServerProcess
from support.terminal import TerminalProcess
from support.waiting import wait_until

HELIO = Path(sys.executable).with_name("helio")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("end-to-end") / "home") as running:
        yield running


def helio(home: Path, *words: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "HELIOSTAT_HOME": str(home)}
    return subprocess.run(
        [HELIO, *words], env=environ, capture_output=True, text=True, timeout=timeout, check=False
    )


def test_the_exit_code_of_run_is_the_jobs_and_its_streams_come_apart(server: ServerProcess) -> None:
    ran = helio(server.home, "run", "--follow", "--", "sh", "-c", "echo out; echo err >&2; exit 7")
    assert ran.returncode == 7
    assert ran.stdout == "out\n"
    assert "err\n" in ran.stderr


def test_following_a_waiting_job_shows_why_it_waits_in_one_line_of_the_terminal(
    server: ServerProcess,
) -> None:
    held = server.client.submit("echo it runs", held=True)
    person = TerminalProcess(["logs", "-f", str(held.id)], {**os.environ, "HELIOSTAT_HOME": str(server.home)})
    person.wait_for_output(f"Job {held.id} held: ")
    assert "\n" not in person.wait_for_output(f"helio release {held.id}")
    held.release()
    assert "\n" not in person.wait_for_output("\r\x1b[2Kit runs\r\n")
    assert person.wait_for_exit() == 0


def test_the_streams_are_shown_together_as_they_were_written_and_apart_from_any_byte(
    server: ServerProcess,
) -> None:
    line = "for i in 1 2 3; do echo out$i; sleep 0.1; echo err$i >&2; sleep 0.1; done"
    job = server.client.submit(line).wait(120)
    assert job.logs() == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert "".join(chunk.text for chunk in job.follow()) == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"
    assert job.logs("stderr") == "err1\nerr2\nerr3\n"
    assert server.client.logs.text(job, "stdout", offset=5) == "out2\nout3\n"
    assert server.client.logs.text(job, "stdout", offset=-5) == "out3\n"


def test_a_job_that_prints_nothing_or_one_stream_leaves_no_note_of_an_order(server: ServerProcess) -> None:
    job = server.client.submit("echo one; sleep 0.05; echo two").wait(120)
    assert {entry.name for entry in (server.home / "jobs" / str(job.id)).iterdir()} == {
        "1.stdout",
        "1.stderr",
        "checkpoints",
    }


def test_following_goes_on_over_a_killed_server_and_loses_nothing(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "home") as server:
        go = tmp_path / "go"
        job = server.client.submit(f"echo before; while [ ! -e {go} ]; do sleep 0.05; done; echo after")
        seen: list[str] = []
        reader = threading.Thread(target=lambda: seen.extend(chunk.text for chunk in job.follow()))
        reader.start()
        wait_until(lambda: "".join(seen) == "before\n", "the first line")
        server.kill()
        go.touch()
        server.start()
        reader.join(120)
        assert "".join(seen) == "before\nafter\n"
        assert job.refresh().state is JobState.COMPLETED


def test_events_come_in_order_while_they_happen(server: ServerProcess) -> None:
    job = server.client.submit("sleep 0.2")
    kinds = []
    for event in server.client.events.follow(job, after=0):
        kinds.append(event["kind"])
        if event["kind"] == "ended":
            break
    assert kinds == ["submitted", "starting", "running", "ended"]


def test_ten_thousand_jobs_go_in_one_request_all_or_none(server: ServerProcess) -> None:
    bodies = [{"command": ["true"], "held": True}] * 10_000
    before = server.client.status()["jobs"].get("held", 0)
    with pytest.raises(Exception, match="No node has"):
        server.client.submit_many([*bodies[:-1], {"command": ["true"], "gpus": 99}])
    assert server.client.status()["jobs"].get("held", 0) == before
    jobs = server.client.submit_many(bodies)
    assert server.client.status()["jobs"]["held"] == before + 10_000
    assert server.client.jobs.cancel_many([job.id for job in jobs]) == 10_000


def test_doctor_looks_at_everything_it_promises(server: ServerProcess) -> None:
    findings = json.loads(helio(server.home, "doctor", "--json").stdout)
    checks = {finding["check"] for finding in findings["findings"]}
    assert {"permissions", "disk", "database", "gpu", "cgroups"} <= checks
    assert all(finding["hint"] for finding in findings["findings"] if finding["level"] == "problem")
    without_server = json.loads(helio(server.home.parent / "none", "doctor", "--json").stdout)
    assert "port" in {finding["check"] for finding in without_server["findings"]}


def test_settings_are_shown_with_the_options_of_the_running_server(server: ServerProcess) -> None:
    shown = json.loads(helio(server.home, "config", "show", "--json").stdout)["settings"]
    found = {one["key"]: (one["value"], one["source"]) for one in shown}
    assert found["server.simulate_gpus"] == ("4xA100", "command line")
    assert found["server.engine"] == ("local", "default")


def test_up_and_down_leave_jobs_running_and_no_sign_of_a_server(tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert helio(home, "up", "--background", "--port", "0").returncode == 0
    try:
        assert "already running" in helio(home, "up", "--background", "--port", "0").stdout
        status = json.loads(helio(home, "status", "--json").stdout)
        job = Client(home=home).submit(f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; exit 5")
        wait_until(lambda: job.refresh().state is JobState.RUNNING, "the job runs")
    finally:
        assert helio(home, "down").returncode == 0
    assert process_start_time(status["pid"]) is None or not is_running(
        status["pid"], process_start_time(status["pid"]) or 0
    )
    assert not (home / "heliostat.sock").exists()
    assert not (home / "server.json").exists()
    assert helio(home, "status").returncode == 3
    (tmp_path / "go").touch()
    assert helio(home, "up", "--background", "--port", "0").returncode == 0
    try:
        assert job.wait(120).exit_code == 5
    finally:
        helio(home, "down")
    instance = hashlib.sha256(str(home).encode()).hexdigest()[:8]
    assert not list(Path("/sys/fs/cgroup").glob(f"*/heliostat-{instance}")), "an empty control group is left"


def test_a_restored_backup_never_gives_a_number_twice(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "home") as server:
        server.client.submit("echo first").wait(120)
        server.kill()
        (tmp_path / "backup").mkdir()
        for database in server.home.glob("heliostat.db*"):
            shutil.copy(database, tmp_path / "backup")
        server.start()
        later = server.client.submit("echo later").wait(120)
        server.kill()
        for database in server.home.glob("heliostat.db*"):
            database.unlink()
        for database in (tmp_path / "backup").glob("heliostat.db*"):
            shutil.copy(database, server.home)
        server.start()
        anew = server.client.submit("echo anew").wait(120)
        assert anew.id > later.id
        assert anew.logs() == "anew\n"


def test_the_demo_is_a_cluster_at_work_and_leaves_nothing(tmp_path: Path) -> None:
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(
        [HELIO, "demo"], env=environ, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert demo.stdout is not None
        home = next(line.partition("=")[2].strip() for line in demo.stdout if "HELIOSTAT_HOME=" in line)
        client = Client(home=home)
        wait_until((Path(home) / "heliostat.sock").exists, "the demo answers")
        nodes = list(client.nodes.list())
        assert (len(nodes), sum(len(node["devices"]) for node in nodes)) == (40, 100)
        wait_until(lambda: client.status()["jobs"].get("running", 0) > 5, "people are at work")
        assert len(list(client.jobs.list(state="completed", limit=1000))) == 1000
    finally:
        demo.send_signal(signal.SIGTERM)
        demo.wait(120)
        demo.stdout.close()
    assert list(tmp_path.iterdir()) == []


def test_a_forced_cancel_waits_for_no_grace(server: ServerProcess) -> None:
    job = server.client.submit("trap '' TERM; echo ready; while :; do sleep 1; done", grace_seconds=200)
    wait_until(lambda: "ready" in job.logs(), "it ignores TERM", 120)
    assert job.cancel().data["stop_requested"] == "cancel"
    assert job.cancel(force=True).data["stop_requested"] == "kill"
    assert job.wait(120).state.value == "cancelled"
