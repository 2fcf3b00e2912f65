"""A real Dask cluster whose workers are jobs, made inside a job."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, wait_for
from support.proxy_browser import proxy_url

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "dask" / "bin" / "python"
SCRIPT = Path(__file__).with_name("dask_script.py")
MANY_CPUS = ROOT / "tests" / "support" / "many_cpus"
PATIENCE_SECONDS = 150.0


@pytest.fixture
def roomy_server() -> Iterator[RunningServer]:
    server = RunningServer(environment={**os.environ, "PYTHONPATH": str(MANY_CPUS)})
    yield server
    server.remove()


@pytest.mark.timeout(400)
@pytest.mark.skipif(not PYTHON.exists(), reason="Dask is not installed: scripts/install --test does it")
def test_a_cluster_of_jobs_computes_grows_shrinks_and_leaves_nothing_behind(roomy_server: RunningServer) -> None:
    server = roomy_server
    words = [str(PYTHON), str(SCRIPT), str(server.home)]
    job = server.submit(command=words, cpus=1, memory="1G", env={"PYTHONPATH": str(ROOT / "src")})
    ended = ("completed", "failed", "lost", "timed_out")
    wait_for(lambda: server.show(job)["state"] in ended, "its end", lambda: errors(server, job), PATIENCE_SECONDS)
    assert server.show(job)["state"] == "completed", errors(server, job)
    told = json.loads(server.output(job).splitlines()[-1])
    assert told["sum"] == sum(number * number for number in range(60))
    assert set(told["ran_in"]) <= set(told["jobs"])
    assert len(told["jobs"]) == 2
    assert told["address"].startswith("tls://")
    assert told["dashboard"].startswith(f"{proxy_url(server)}/s/{job}-")
    assert told["health"] == "ok"
    assert told["adapted"] == 49
    states = {server.show(number)["state"] for number in told["jobs"]}
    assert states <= {"cancelled", "completed"}


def errors(server: RunningServer, job: int) -> str:
    return server.output(job, stream="stderr")[-3000:]
