"""A job runs inside a reservation: on one machine as on Slurm."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture
def on_slurm(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    slurm.add_user("root")
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.ask("DELETE", "/reservations/course")
    server.remove()


@pytest.fixture
def alone() -> Iterator[RunningServer]:
    server = RunningServer()
    yield server
    server.remove()


def reserve(server: RunningServer, node: str, seconds: float) -> None:
    begin = datetime.now(UTC) + timedelta(seconds=seconds)
    body = {
        "name": "course",
        "nodes": [node],
        "starts_at": begin.isoformat(),
        "ends_at": (begin + timedelta(hours=1)).isoformat(),
        "project": "default",
    }
    answer = server.ask("POST", "/reservations", body)
    assert answer.status == 201, answer.body


def test_a_job_waits_for_its_reservation_says_so_and_runs_in_it(alone: RunningServer) -> None:
    (node,) = [one["name"] for one in alone.ask("GET", "/nodes").json["items"]]
    reserve(alone, node, 20)
    job = alone.submit(command=["true"], cpus=1, reservation="course")
    assert alone.show(job)["reservation"] == "course"
    assert alone.show(job)["reason"].startswith("waits for the reservation course, which begins at")
    why = alone.ask("GET", f"/jobs/{job}/why").json
    assert why["blocked_by"] == "reservation"
    assert why["sentence"].startswith("waits for the reservation course")
    over = alone.finished(job)
    (kept,) = alone.ask("GET", "/reservations").json["items"]
    assert over["state"] == "completed"
    assert over["started_at"] >= kept["starts_at"]


def test_a_reservation_that_is_not_there_is_refused_with_those_there_are(alone: RunningServer) -> None:
    (node,) = [one["name"] for one in alone.ask("GET", "/nodes").json["items"]]
    reserve(alone, node, 3600)
    refused = alone.ask("POST", "/jobs", {"command": ["true"], "reservation": "nope; rm"})
    assert refused.status == 422
    assert "You can use: course (project default)" in refused.error["hint"]
    assert "reservation" in refused.error["fields"]


def test_slurm_is_told_of_it(on_slurm: RunningServer, slurm: SlurmTestCluster) -> None:
    reserve(on_slurm, "n3", 3600)
    waiting = on_slurm.submit(command=["true"], cpus=1, reservation="course")
    wait_for(lambda: on_slurm.show(waiting)["reason"].startswith("waits for the reservation course"), "it waits")
    wait_for(lambda: "course" in slurm.run("squeue", "--noheader", "--Format=Reservation"), "Slurm has it")
    on_slurm.ask("POST", f"/jobs/{waiting}/cancel")
    wait_for(lambda: on_slurm.ask("DELETE", "/reservations/course").status == 204, "nobody uses it any more")
    reserve(on_slurm, "n3", 0)
    job = on_slurm.submit(command=["true"], cpus=1, reservation="course")
    over = on_slurm.finished(job)
    assert (over["state"], over["node"]) == ("completed", "n3")
