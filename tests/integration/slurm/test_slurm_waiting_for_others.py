"""Jobs that wait for others, or for a time, wait in our queue and come to Slurm when they may start."""

import os
import signal
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def events(server: RunningServer, job: int) -> list[str]:
    return [event["kind"] for event in server.ask("GET", f"/events?job_id={job}&after=0").json["items"]]


def submit_array(server: RunningServer, **body: object) -> list[int]:
    answer = server.ask("POST", "/jobs", {"array": "0-1", "cpus": 1, "memory": "64M", **body})
    assert answer.status == 201, answer.body
    ids: list[int] = answer.json["job_ids"]
    return ids


def kill(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait()


def is_in_slurm(server: RunningServer, job: int) -> bool:
    return any(server.home.glob(f"attempts/{job}.*.slurm"))


def test_a_chain_waits_here_says_so_and_goes_on_after_a_server_that_was_killed(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    parent = server.submit(command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"], cpus=1)
    child = server.submit(command=["true"], cpus=1, after=parent)
    grandchild = server.submit(command=["true"], cpus=1, after=child)
    wait_for(lambda: server.show(parent)["state"] == "running", "the parent runs")
    assert server.show(child)["reason"].startswith(f"waits for job {parent} (running")
    why = server.ask("GET", f"/jobs/{child}/why").json
    assert why["sentence"].startswith(f"waits for job {parent} (running")
    assert (why["blocked_by"], why["position"]) == ("parents", None)
    kill(server)
    go.touch()
    server.start()
    assert [server.finished(job)["state"] for job in (parent, child, grandchild)] == ["completed"] * 3
    assert [server.show(job)["attempt"] for job in (parent, child, grandchild)] == [1, 1, 1]


def test_a_job_that_waits_for_a_failure_starts_and_one_that_waits_for_success_is_cancelled(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    parent = server.submit(command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done; exit 3"], cpus=1)
    glad = server.submit(command=["true"], cpus=1, after=parent)
    sorry = server.submit(command=["true"], cpus=1, after_failed=parent)
    either = server.submit(command=["true"], cpus=1, after_any=parent)
    wait_for(lambda: server.show(parent)["state"] == "running", "the parent runs")
    assert [is_in_slurm(server, job) for job in (glad, sorry, either)] == [False] * 3
    go.touch()
    assert server.finished(sorry)["state"] == server.finished(either)["state"] == "completed"
    over = server.finished(glad)
    assert (over["state"], over["reason"]) == ("cancelled", f"job {parent}, on which it depends, failed")


def test_a_parent_that_exits_well_because_we_stop_it_starts_no_job(server: RunningServer) -> None:
    parent = server.submit(command=["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"], cpus=1)
    child = server.submit(command=["true"], cpus=1, after=parent)
    later = server.submit(command=["true"], cpus=1, after_any=parent)
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs")
    server.ask("POST", f"/jobs/{parent}/requeue")
    wait_for(lambda: server.show(parent)["attempt"] == 2, "it is tried again")
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs again")
    assert not is_in_slurm(server, child)
    assert not is_in_slurm(server, later)
    server.ask("POST", f"/jobs/{parent}/cancel")
    assert server.finished(child)["state"] == "cancelled"
    assert server.finished(later)["state"] == "completed"
    for job in (child, later):
        assert events(server, job).count("running") == (job == later)


def test_each_element_of_an_array_waits_for_its_own(
    server: RunningServer, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done; exit $HELIOSTAT_ARRAY_INDEX"
    parents = submit_array(server, command=["sh", "-c", script])
    array = server.show(parents[0])["array_id"]
    children = submit_array(server, command=["true"], after_each=f"array:{array}")
    wait_for(lambda: server.show(parents[0])["state"] == "running", "the parents run")
    assert server.show(children[0])["reason"].startswith(f"waits for job {parents[0]} (running")
    go.touch()
    assert server.finished(children[0])["state"] == "completed"
    assert server.finished(children[1])["state"] == "cancelled"


def test_a_job_waits_here_for_its_time_to_begin(server: RunningServer) -> None:
    job = server.submit(command=["true"], cpus=1, begin="+1h")
    soon = server.submit(command=["true"], cpus=1, begin="+2s")
    assert "waits for its begin time" in server.show(job)["reason"]
    over = server.finished(soon)
    assert over["state"] == "completed"
    assert over["started_at"] >= over["begin_at"]
    assert not is_in_slurm(server, job)
    server.ask("POST", f"/jobs/{job}/cancel")
    assert server.finished(job)["state"] == "cancelled"


def test_a_server_that_dies_while_a_parent_is_requeued_loses_and_doubles_none(server: RunningServer) -> None:
    parent = server.submit(command=["sleep", "600"], cpus=1)
    children = [server.submit(command=["true"], cpus=1, after_any=parent) for _ in range(6)]
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs")
    server.ask("POST", f"/jobs/{parent}/requeue")
    kill(server)
    server.start()
    wait_for(lambda: server.show(parent)["attempt"] == 2, "it is tried again")
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs again")
    assert not any("running" in events(server, child) for child in children)
    server.ask("POST", f"/jobs/{parent}/cancel")
    for child in children:
        assert server.finished(child)["state"] == "completed"
        assert events(server, child).count("running") == 1
