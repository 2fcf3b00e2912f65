"""The queue explained as people see it: the real server and command line, on made-up machines."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.server_process import ServerProcess
from support.waiting import wait_until

HELIO = Path(sys.executable).with_name("helio")
SIX_SECONDS = {"HELIOSTAT_SIMULATED_SECONDS": "6"}
LONG = {"HELIOSTAT_SIMULATED_SECONDS": "18"}  # while a busy machine starts a few command lines one after the other


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    home = tmp_path_factory.mktemp("words") / "home"
    with ServerProcess(home, server={"engine": "simulated", "simulated_nodes": "1x4xA100"}) as running:
        yield running


def helio(server: ServerProcess, *words: str) -> str:
    environ = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    done = subprocess.run([HELIO, *words], env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_job_is_foretold_starts_and_is_judged(server: ServerProcess) -> None:
    client = server.client
    first = client.submit("train", gpus=3, time="20s", env=LONG)
    second = client.submit("train", gpus=4, time="20s", env=SIX_SECONDS)
    wait_until(lambda: second.refresh().data["forecast"], "the first forecast", 120)
    told = helio(server, "why", str(second.id))
    assert f"Job {second.id} pending: needs 4 GPUs on one node with 32 CPUs and 512 GiB; 1 GPU" in told
    assert "position   1 of 1" in told
    assert "starts     very soon, " in told
    assert "very soon; needs 4 GPUs" in helio(server, "ps")
    at_once = "If submitted now, the job would start immediately.\n"
    assert helio(server, "when", "--gpus", "1", "--time", "5s") == at_once
    asked = json.loads(helio(server, "when", "--gpus", "4", "--time", "1h", "--json"))
    assert asked["forecast"]["earliest_at"] <= asked["forecast"]["limits_at"]
    client.wait([first, second], 60)
    wait_until(lambda: client.status()["forecasts"]["of"] == 1, "the forecast is judged", 120)
    assert "too few so far to know their accuracy" in helio(server, "status")


def test_shares_and_months_add_up(server: ServerProcess) -> None:
    server.client.submit("train", gpus=2, env=SIX_SECONDS).wait(120)
    (department,) = server.client.queue.share()["items"]
    assert department["children"][0]["usage_gpu_hours"] == department["usage_gpu_hours"] > 0
    (line,) = server.client.queue.report(by="department")
    assert (line["name"], line["fraction_of_total"]) == ("default", 1.0)
    assert server.client.queue.report_csv(by="department").splitlines()[1].startswith(f"{line['period']},default,")
    assert "default" in helio(server, "share")
    assert server.client.status()["user"] in helio(server, "report", "--by", "user")


def test_a_restart_keeps_how_good_forecasts_were(server: ServerProcess) -> None:
    before = server.client.status()["forecasts"]
    server.stop()
    server.start()
    wait_until(lambda: server.client.status()["forecasts"] == before, "what is known of the past", 120)
