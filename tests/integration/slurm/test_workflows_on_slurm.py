"""Workflows on a real Slurm: decided by us, queued there, each job once whatever dies on the way."""

import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from integration.workflow_diamond import assert_it_went_as_it_should, diamond, finished, show, submit
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
SMALL: dict[str, Any] = {"memory": "64M", "cpus": 1, "workdir": "/"}


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    slurm.add_user(two_unix_users[0].name)
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def kill_and_start(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    server.start()


@pytest.mark.timeout(400)
def test_a_diamond_with_everything_in_it_runs_on_slurm(server: RunningServer, ann: Person) -> None:
    number = submit(server, diamond(SMALL, str(ann.home / "tries")), ann.uid)
    assert_it_went_as_it_should(server, finished(server, number, ann.uid), ann.uid)


@pytest.mark.timeout(600)
def test_each_job_runs_once_though_the_server_is_killed_in_the_middle(server: RunningServer, ann: Person) -> None:
    ran, go = ann.home / "ran", ann.home / "go"
    middle = f'echo "$1" >> {ran}; while [ ! -e {go} ]; do sleep 0.1; done; echo "v=$1" >> "$HELIOSTAT_OUTPUT"'
    jobs = {
        "top": {"command": f'echo top >> {ran}; echo v=1 >> "$HELIOSTAT_OUTPUT"'},
        "middle": {
            "needs": "top",
            "matrix": {"n": [1, 2]},
            "command": ["/bin/sh", "-c", middle, "x", "${{ jobs.top.outputs.v }}${{ matrix.n }}"],
        },
        "bottom": {
            "needs": "middle",
            "command": ["/bin/sh", "-c", f'echo "$1" >> {ran}', "x", "${{ join(jobs.middle.outputs.v) }}"],
        },
    }
    document = {"name": "killed", "jobs": {name: {**SMALL, **job} for name, job in jobs.items()}}
    number = submit(server, document, ann.uid)
    kill_and_start(server)
    wait_for(
        lambda: _lines(ran) == ["11", "12", "top"], "both of the middle run", lambda: show(server, number, ann.uid)
    )
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()
    go.touch()  # they end while nobody of ours looks
    server.start()
    found = finished(server, number, ann.uid)
    assert found["state"] == "completed", found
    assert Counter(_lines(ran)) == Counter(["top", "11", "12", "11,12"])


@pytest.mark.timeout(400)
def test_a_workflow_that_is_cancelled_leaves_nothing_in_slurm(
    server: RunningServer, slurm: SlurmTestCluster, ann: Person
) -> None:
    begun = ann.home / "begun"
    jobs = {
        "a": {"command": f"touch {begun}; sleep 600"},
        "b": {"command": "true", "needs": "a"},
        "c": {"command": "true", "needs": ["a", "b"], "if": "always()"},
    }
    document = {"name": "long", "jobs": {name: {**SMALL, **job} for name, job in jobs.items()}}
    number = submit(server, document, ann.uid)
    wait_for(begun.exists, "the first has begun", lambda: show(server, number, ann.uid))
    assert server.ask("POST", f"/workflows/{number}/cancel", uid=ann.uid).status == 200
    found = finished(server, number, ann.uid)
    assert [job["state"] for job in found["jobs"]] == ["cancelled"] * 3, found
    words = ("squeue", "--noheader", f"--user={ann.name}", "-o", "%i %T")
    wait_for(lambda: not slurm.run(*words).strip(), "nothing of it is in Slurm", lambda: slurm.run(*words))


def _lines(file: Path) -> list[str]:
    return sorted(file.read_text().splitlines()) if file.exists() else []
