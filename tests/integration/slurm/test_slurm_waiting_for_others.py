"""Jobs that wait for others, or for a time, wait in Slurm, which starts them by itself."""

import os
import re
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root
from support.slurm import TestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: TestCluster) -> Iterator[RunningServer]:
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


def number_of(server: RunningServer, job: int) -> str:
    """In Slurm, as of its newest attempt; empty: it is not there."""
    traces = sorted(server.home.glob(f"attempts/{job}.*.slurm"))
    found = re.search(r" job (\S+)", traces[-1].read_text()) if traces else None
    return found[1] if found else ""


def in_slurm(slurm: TestCluster, number: str) -> str:
    """`PENDING Dependency afterok:12(unfulfilled)`."""
    return slurm.run("squeue", "--noheader", "--states=all", "--array", "-j", number, "-o", "%T %r %E").strip()


def wait_until_it_waits(server: RunningServer, slurm: TestCluster, job: int, words: str) -> str:
    wait_for(lambda: number_of(server, job), f"job {job} is in Slurm")
    number = number_of(server, job)
    wait_for(lambda: words in in_slurm(slurm, number), f"Slurm says of job {job}: {words}")
    return number


def test_children_wait_in_slurm_and_start_there_while_nobody_of_ours_looks(
    server: RunningServer, slurm: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    parent = server.submit(command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"], cpus=1)
    child = server.submit(command=["true"], cpus=1, after=parent)
    grandchild = server.submit(command=["true"], cpus=1, after=child)
    wait_for(lambda: server.show(parent)["state"] == "running", "the parent runs")
    wait_until_it_waits(server, slurm, child, f"afterok:{number_of(server, parent)}")
    last = wait_until_it_waits(server, slurm, grandchild, f"afterok:{number_of(server, child)}")
    assert server.show(child)["reason"].startswith(f"waits for job {parent} (running")
    why = server.ask("GET", f"/jobs/{child}/why").json
    assert why["sentence"].startswith(f"waits for job {parent} (running")
    assert (why["blocked_by"], why["position"]) == ("parents", None)
    kill(server)
    go.touch()
    wait_for(lambda: in_slurm(slurm, last).startswith("COMPLETED"), "Slurm has run them all")
    server.start()
    assert [server.finished(job)["state"] for job in (parent, child, grandchild)] == ["completed"] * 3
    assert [server.show(job)["attempt"] for job in (parent, child, grandchild)] == [1, 1, 1]


def test_who_waits_for_a_failure_starts_and_who_waits_for_success_is_cancelled_by_us(
    server: RunningServer, slurm: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    parent = server.submit(command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done; exit 3"], cpus=1)
    glad = server.submit(command=["true"], cpus=1, after=parent)
    sorry = server.submit(command=["true"], cpus=1, after_failed=parent)
    either = server.submit(command=["true"], cpus=1, after_any=parent)
    wait_until_it_waits(server, slurm, sorry, "afternotok:")
    wait_until_it_waits(server, slurm, either, "afterany:")
    go.touch()
    assert server.finished(sorry)["state"] == server.finished(either)["state"] == "completed"
    over = server.finished(glad)
    assert (over["state"], over["reason"]) == ("cancelled", f"job {parent}, which it waited for, failed")


def test_a_parent_that_exits_well_because_we_stop_it_starts_nobody(
    server: RunningServer, slurm: TestCluster
) -> None:
    parent = server.submit(command=["sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.1; done"], cpus=1)
    child = server.submit(command=["true"], cpus=1, after=parent)
    later = server.submit(command=["true"], cpus=1, after_any=parent)
    wait_until_it_waits(server, slurm, child, "afterok:")
    before = wait_until_it_waits(server, slurm, later, "afterany:")
    server.ask("POST", f"/jobs/{parent}/requeue")
    wait_for(lambda: server.show(parent)["attempt"] == 2, "it is tried again")
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs again")
    wait_until_it_waits(server, slurm, child, f"afterok:{number_of(server, parent)}")
    wait_until_it_waits(server, slurm, later, f"afterany:{number_of(server, parent)}")
    assert in_slurm(slurm, before).startswith("CANCELLED")
    server.ask("POST", f"/jobs/{parent}/cancel")
    assert server.finished(child)["state"] == "cancelled"
    assert server.finished(later)["state"] == "completed"
    for job in (child, later):
        assert events(server, job).count("running") == (job == later)


def test_each_element_of_an_array_waits_for_its_own(
    server: RunningServer, slurm: TestCluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    go = tmp_path_factory.mktemp("go") / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done; exit $HELIOSTAT_ARRAY_INDEX"
    parents = submit_array(server, command=["sh", "-c", script])
    array = server.show(parents[0])["array_id"]
    children = submit_array(server, command=["true"], after_each=f"array:{array}")
    wait_until_it_waits(server, slurm, children[0], "aftercorr:")
    go.touch()
    assert server.finished(children[0])["state"] == "completed"
    assert server.finished(children[1])["state"] == "cancelled"


def test_slurm_is_told_when_a_job_may_begin(server: RunningServer, slurm: TestCluster) -> None:
    job = server.submit(command=["true"], cpus=1, begin="+1h")
    number = wait_until_it_waits(server, slurm, job, "BeginTime")
    assert "is not to begin before" in server.show(job)["reason"]
    begin = datetime.fromisoformat(server.show(job)["begin_at"])
    told = slurm.run("squeue", "--noheader", f"--jobs={number}", "--Format=EligibleTime").strip()
    assert 0 <= (datetime.fromisoformat(told).astimezone() - begin).total_seconds() <= 1
    slurm.run("scontrol", "update", f"JobId={number}", "StartTime=now")
    assert server.finished(job)["state"] == "completed"


def test_a_server_that_dies_while_it_takes_children_back_loses_and_doubles_none(
    server: RunningServer, slurm: TestCluster
) -> None:
    parent = server.submit(command=["sleep", "600"], cpus=1)
    children = [server.submit(command=["true"], cpus=1, after_any=parent) for _ in range(6)]
    for child in children:
        wait_until_it_waits(server, slurm, child, "afterany:")
    server.ask("POST", f"/jobs/{parent}/requeue")
    time.sleep(0.3)  # in the middle of it, or before or after: all must be well
    kill(server)
    server.start()
    wait_for(lambda: server.show(parent)["attempt"] == 2, "it is tried again")
    wait_for(lambda: server.show(parent)["state"] == "running", "it runs again")
    assert not any("running" in events(server, child) for child in children)
    server.ask("POST", f"/jobs/{parent}/cancel")
    for child in children:
        assert server.finished(child)["state"] == "completed"
        assert events(server, child).count("running") == 1
