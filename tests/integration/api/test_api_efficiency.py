"""What jobs used, over HTTP and on the command line: reports of ended jobs, and hints for the next submission."""

import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from heliostat.store.samples import SampleStore
from integration.running_server import RunningServer
from integration.unix_users import Person, needs_root
from integration.web.surfing import Surfer

TRAIN = {"command": "true", "name": "train", "cpus": 8, "memory": "64G", "gpus": 2, "time_limit": "1h"}
HINTS = [
    "Your last 2 jobs named train used at most 1 of 2 GPUs. `--gpus 1` would be enough.",
    "Your last 2 jobs named train used at most 6 GiB of 64 GiB of memory. `--memory 8G` would be enough.",
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """With two jobs that ran for half an hour: their times and samples are written while the server is down."""
    server = RunningServer('server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\n')
    fast = {"env": {"HELIOSTAT_SIMULATED_SECONDS": "0"}}
    ids = [server.finished(server.submit(**TRAIN, **fast))["id"] for _ in range(2)]
    server.stop()
    with sqlite3.connect(server.home / "heliostat.db") as database:
        for table in ("jobs", "attempts"):
            database.execute(f"UPDATE {table} SET started_at = ended_at - 1800")
    database.close()
    _add_samples(server, ids)
    server.start()
    yield server
    server.remove()


def _add_samples(server: RunningServer, ids: list[int]) -> None:
    store, end = SampleStore(server.home / "samples.db"), time.time()
    for at in range(int(end) - 1790, int(end), 10):
        usage = {f"job/{number}": [7.0, number * 3072.0, 90.0, 30000.0, 0.0, 400.0] for number in ids}
        store.add(at, usage | {f"job-power/{number}": [400.0] for number in ids})
    store.flush(end)
    store.close()


def test_a_submission_and_its_preview_get_hints(server: RunningServer) -> None:
    held = {**TRAIN, "held": True}
    answer = server.ask("POST", "/jobs", held)
    assert [hint["text"] for hint in answer.json["hints"]] == HINTS
    preview = server.ask("POST", "/jobs?dry_run=true", held)
    assert [hint["text"] for hint in preview.json["hints"]] == HINTS
    assert server.ask("POST", "/jobs/bulk", {"jobs": [held]}).json["hints"] == answer.json["hints"]
    assert server.ask("POST", "/jobs/bulk", {"jobs": [held, held]}).json["hints"] == []
    assert "hints" not in server.ask("POST", "/jobs", {**held, "array": "0-1"}).json
    assert server.ask("POST", "/jobs", {**held, "gpus": 1}).json["hints"] == []


def test_the_command_line_prints_hints_as_messages_but_not_with_json(server: RunningServer) -> None:
    words = ["run", "--name", "train", "--cpus", "8", "--memory", "64G", "--gpus", "2", "--time", "1h", "--hold"]
    ran = _helio(server, *words, "--", "true")
    assert ran.stderr.splitlines()[-2:] == HINTS
    assert not any(hint in ran.stdout for hint in HINTS)
    assert _helio(server, *words, "--json", "--", "true").stderr == ""


def test_the_form_shows_hints_before_the_submission(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    fields = {"name": "train", "command": "true", "cpus": "8", "memory": "64G", "gpus": "2", "time_limit": "1h"}
    token = surfer.get("/jobs/new").form_token
    page = surfer.post("/jobs/new", list({**fields, "csrf": token, "do": "preview"}.items()))
    assert page.status == 200
    for hint in HINTS:
        assert hint in page.text


def test_ended_jobs_are_listed_with_the_change_for_their_next_run(server: RunningServer) -> None:
    first, second = server.ask("GET", "/efficiency").json["items"]
    assert first["efficiency"]["change"] == {"gpus": 1, "memory": "4G"}
    assert first["efficiency"]["command"] == f"helio rerun {first['job_id']} --set gpus=1 --set memory=4G"
    assert (first["unused_gpu_hours"], second["unused_gpu_hours"]) == (0.55, 0.55)
    assert first["energy"]["kwh"] == pytest.approx(0.2, abs=0.01)
    listed = _helio(server, "efficiency", "--mine").stdout.splitlines()
    assert listed[1].endswith("--gpus 1 --memory 4G")
    assert "`--gpus 1 --memory 4G` would have been enough." in _helio(server, "efficiency", "1").stdout


def test_a_change_can_be_submitted_as_it_is(server: RunningServer) -> None:
    (first, _) = server.ask("GET", "/efficiency").json["items"]
    job = server.ask("POST", f"/jobs/{first['job_id']}/rerun", {"changes": first["efficiency"]["change"]}).json[
        "job"
    ]
    assert (job["gpus"], job["memory_mib"]) == (1, 4096)


@needs_root
def test_others_see_neither_the_list_nor_the_hints(server: RunningServer, ann: Person) -> None:
    assert server.ask("GET", "/efficiency?project=default", uid=ann.uid).json["items"] == []
    assert server.ask("GET", "/jobs/1/stats", uid=ann.uid).status == 403
    assert server.ask("POST", "/jobs", {**TRAIN, "held": True}, uid=ann.uid).json["hints"] == []


def _helio(server: RunningServer, *words: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home), "COLUMNS": "200"}
    command = [sys.executable, "-m", "heliostat.cli.main", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=server.folder)
