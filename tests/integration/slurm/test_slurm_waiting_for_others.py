"""Jobs that wait for others are handed to Slurm when they may start, and not before."""

import os
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm import TestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: TestCluster) -> Iterator[RunningServer]:
    server = RunningServer('engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def events(server: RunningServer, job: int) -> list[str]:
    return [event["kind"] for event in server.ask("GET", f"/events?job_id={job}&after=0").json["items"]]


def test_a_child_is_handed_over_when_its_parent_is_over_and_cancelled_when_it_fails(server: RunningServer) -> None:
    parent = server.submit(command=["sleep", "600"], cpus=1)
    child = server.submit(command=["true"], cpus=1, after_failed=parent)
    never = server.submit(command=["true"], cpus=1, after=parent)
    wait_for(lambda: server.show(parent)["state"] == "running", "the parent runs")
    assert server.show(child)["reason"].startswith(f"waits for job {parent} (running")
    assert "handed_over" not in events(server, child)
    server.ask("POST", f"/jobs/{parent}/cancel")
    assert server.finished(child)["state"] == "completed"
    assert server.finished(never)["state"] == "cancelled"
    told = events(server, child)
    assert told.index("parents_over") < told.index("handed_over")
    assert "handed_over" not in events(server, never)


def test_a_job_is_handed_over_when_its_time_to_begin_has_come(server: RunningServer) -> None:
    job = server.submit(command=["true"], cpus=1, begin="+3s")
    assert "is not to begin before" in server.show(job)["reason"]
    over = server.finished(job)
    assert over["state"] == "completed"
    assert over["started_at"] >= over["begin_at"]
