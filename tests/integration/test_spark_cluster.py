"""A real Spark cluster as a gang of the queue: a master that runs the program, and workers."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, wait_for

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv" / "spark" / "bin" / "python3"
SCRIPT = Path(__file__).with_name("spark_script.py")
MANY_CPUS = ROOT / "tests" / "support" / "many_cpus"
PATIENCE_SECONDS = 600.0
ENDED = ("completed", "failed", "lost", "timed_out", "cancelled")

pytestmark = [
    pytest.mark.timeout(800),
    pytest.mark.skipif(shutil.which("java") is None, reason="there is no Java here"),
    pytest.mark.skipif(
        not PYTHON.exists(),
        reason="Spark (500 MB) is not there: python3 -m venv .venv/spark; .venv/spark/bin/pip install pyspark",
    ),
]


@pytest.fixture(scope="module")
def roomy_server() -> Iterator[RunningServer]:
    server = RunningServer(environment={**os.environ, "PYTHONPATH": str(MANY_CPUS)})
    yield server
    server.remove()


def run(server: RunningServer, tasks: int, *words: str) -> int:
    body = {"template": "spark", "tasks": tasks, "cpus": 1, "memory": "1536M"}
    path = f"{PYTHON.parent}:{os.environ['PATH']}"
    job = server.submit(command=list(words), env={"PATH": path}, **body)
    wait_for(lambda: server.show(job)["state"] in ENDED, "its end", lambda: errors(server, job), PATIENCE_SECONDS)
    return job


def test_workers_compute_and_the_secret_stays_in_its_file(roomy_server: RunningServer) -> None:
    job = run(roomy_server, 3, str(PYTHON), str(SCRIPT))
    assert roomy_server.show(job)["state"] == "completed", errors(roomy_server, job)
    told = json.loads(roomy_server.output(job).splitlines()[-1])
    assert told["master"].startswith("spark://127.0.0.1:")
    assert told["sum"] == sum(number * number for number in range(1000))
    assert set(told["ran_in"]) <= {"1", "2"}
    assert (told["mode"], told["secret_seen"]) == ("0o600", [])
    assert not list((roomy_server.home / "jobs" / str(job) / "checkpoints").glob(".spark*"))


def test_one_task_computes_by_itself(roomy_server: RunningServer) -> None:
    job = run(roomy_server, 1, "spark-submit", str(SCRIPT))
    assert roomy_server.show(job)["state"] == "completed", errors(roomy_server, job)
    assert json.loads(roomy_server.output(job).splitlines()[-1])["master"] == "local[1]"


def test_a_program_that_fails_fails_the_job(roomy_server: RunningServer) -> None:
    job = run(roomy_server, 2, "/bin/sh", "-c", "exit 7")
    assert (roomy_server.show(job)["state"], roomy_server.show(job)["exit_code"]) == ("failed", 7)


def errors(server: RunningServer, job: int) -> str:
    return server.output(job, stream="stderr")[-3000:]
