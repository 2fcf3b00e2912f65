"""Heliostat on a real Slurm, as people use it."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.config import Home
from heliostat.services.backups.create import create_backup
from heliostat.services.backups.restore import restore_backup
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from integration.web.surfing import Surfer
from support.slurm_cluster import SlurmTestCluster

SETTINGS = 'server.engine = "slurm"\n'
pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def admitted(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> list[Person]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    return two_unix_users


def kill(server: RunningServer) -> None:
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait(120)


def in_slurm(slurm: SlurmTestCluster) -> list[list[str]]:
    """State, user and devices of every job Slurm has in its queue."""
    lines = slurm.run("squeue", "-h", "-t", "PD,CF,R,CG", "-o", "%T %u %b").splitlines()
    return [line.split() for line in lines]


def with_four_gpus(slurm: SlurmTestCluster) -> list[list[str]]:
    """Those of one test: others of the same Slurm may still be ending."""
    return [job for job in in_slurm(slurm) if "t4:4" in job[2]]


def test_a_job_runs_on_a_node_of_slurm_with_its_gpus_and_leaves_its_output(server: RunningServer) -> None:
    script = 'echo "$HELIOSTAT_NODE $CUDA_VISIBLE_DEVICES"; echo oops >&2; exit 3'
    job = server.run(command=["sh", "-c", script], gpus=2, gpu_type="t4")
    assert (job["state"], job["exit_code"], job["node"]) == ("failed", 3, "n4")
    assert server.output(job["id"]) == "n4 0,1\n"
    assert server.output(job["id"], stream="stderr") == "oops\n"


def test_a_job_waits_with_slurms_reason_and_runs_when_there_is_room(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    first = server.submit(command=["sleep", "600"], gpus=4, gpu_type="t4")
    wait_for(lambda: server.show(first)["state"] == "running", "the first runs")
    assert server.show(first)["devices"] == ["n4:0", "n4:1", "n4:2", "n4:3"]
    second = server.submit(command=["true"], gpus=4, gpu_type="t4")
    wait_for(lambda: "in use" in (server.show(second)["reason"] or ""), "a reason", lambda: server.show(second))
    assert server.show(second)["state"] == "pending"
    why = server.ask("GET", f"/jobs/{second}/why?what_if=true").json
    assert ("in use" in why["sentence"], why["forecast"]) == (True, None)
    server.ask("POST", f"/jobs/{first}/cancel")
    assert server.finished(first)["state"] == "cancelled"
    assert server.finished(second)["state"] == "completed"


def test_who_is_held_or_cancelled_while_waiting_leaves_slurms_queue(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    first = server.submit(command=["sleep", "600"], gpus=4, gpu_type="t4")
    wait_for(lambda: server.show(first)["state"] == "running", "the first runs")
    # Unlike each other, as like ones may be handed over as one array.
    second, third = (server.submit(command=["true"], gpus=4, gpu_type="t4", memory=mib) for mib in (64, 65))
    wait_for(lambda: len(with_four_gpus(slurm)) == 3, "all are in Slurm")
    server.ask("POST", f"/jobs/{second}/hold")
    server.ask("POST", f"/jobs/{third}/cancel")
    wait_for(lambda: len(with_four_gpus(slurm)) == 1, "two have left", lambda: in_slurm(slurm))
    server.ask("POST", f"/jobs/{first}/cancel")
    assert server.finished(first)["state"] == "cancelled"
    assert server.show(second)["state"] == "held"
    server.ask("POST", f"/jobs/{second}/release")
    assert server.finished(second)["state"] == "completed"


def test_a_job_cancelled_with_slurms_own_tools_is_cancelled_here_too(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    job = server.submit(command=["sleep", "600"])
    wait_for(lambda: server.show(job)["state"] == "running", "it runs")
    slurm.run("scancel", "--user=root")
    ended = server.finished(job)
    assert (ended["state"], ended["reason"]) == ("cancelled", "cancelled with Slurm's own tools")


def test_each_runs_as_themselves_and_cannot_read_the_others_output(
    server: RunningServer, admitted: list[Person]
) -> None:
    ann, bob = admitted
    script = 'id -un; id -gn; echo "$HOME"; env | grep -c ^SUDO_ || true'
    job = server.run(ann.uid, command=["sh", "-c", script])
    assert server.output(job["id"], ann.uid) == f"{ann.name}\n{ann.name}\n{ann.home}\n0\n"
    spied = server.run(bob.uid, command=["cat", f"{server.home}/jobs/{job['id']}/1.stdout"])
    assert (spied["state"], server.output(spied["id"], bob.uid)) == ("failed", "")


def test_a_class_that_slurm_would_refuse_is_refused_before(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", {"command": ["true"], "priority_class": "scavenger"})
    assert answer.status == 422
    assert "scavenger" in answer.error["message"]


def test_a_killed_server_finds_its_jobs_again_and_doubles_none(slurm: SlurmTestCluster) -> None:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    try:
        go = server.folder / "go"
        script = f"echo once; while [ ! -e {go} ]; do sleep 0.1; done"
        running = server.submit(command=["sh", "-c", script], gpus=4, gpu_type="t4")
        wait_for(lambda: server.show(running)["state"] == "running", "it runs")
        waiting = server.submit(command=["echo", "once"], gpus=4, gpu_type="t4")
        wait_for(lambda: len(with_four_gpus(slurm)) == 2, "both are in Slurm")
        kill(server)
        go.touch()
        server.start()
        for job in (running, waiting):
            assert server.finished(job)["state"] == "completed"
            assert server.output(job) == "once\n"
    finally:
        server.remove()


def test_a_restored_server_finds_the_jobs_that_slurm_has_got_since_the_backup(
    slurm: SlurmTestCluster, tmp_path: Path
) -> None:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    try:
        script = f"echo ran; until test -e {server.folder}/go-on; do sleep 0.1; done"
        known = server.submit(command=["sh", "-c", script], memory=64, held=True)
        backup = create_backup(Home(server.home), tmp_path)
        server.ask("POST", f"/jobs/{known}/release")
        unknown = server.submit(command=["sleep", "600"], memory=64)
        for job in (known, unknown):
            wait_for(lambda job=job: server.show(job)["state"] == "running", f"job {job} runs")
        server.stop()
        restore_backup(Home(server.home), backup)
        server.start()
        (found,) = server.ask("GET", "/pause").json["unknown_jobs"]
        assert (found["job_id"], found["place"].startswith("Slurm job ")) == (unknown, True)
        assert server.ask("POST", "/resume", {"unknown_jobs": "stop"}).status == 204
        wait_for(
            lambda: server.show(known)["state"] == "running", "the job is taken up", lambda: server.show(known)
        )
        number = found["place"].removeprefix("Slurm job ")
        wait_for(
            lambda: not slurm.run("squeue", "-h", "-j", number, "-t", "R").strip(), "the unknown job is stopped"
        )
        (server.folder / "go-on").touch()
        assert server.finished(known)["state"] == "completed"
        assert server.output(known) == "ran\n"
    finally:
        server.remove()


def test_jobs_submitted_while_slurm_is_away_run_once_when_it_is_back(slurm: SlurmTestCluster) -> None:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    try:
        slurm.stop_daemon("slurmctld")
        try:
            jobs = [server.submit(command=["echo", "once"]) for _ in range(3)]
            wait_for(
                lambda: "waits for submission to Slurm" in (server.show(jobs[0])["reason"] or ""), "it says so"
            )
            away = "Slurm has not answered since 20"
            wait_for(lambda: away in server.ask("GET", "/jobs").headers.get("heliostat-notice", ""), "a notice")
            assert server.ask("GET", "/status").json["engine_outage"]["reason"]
            assert away in str(server.ask("GET", "/doctor").json)
            assert away in Surfer(server).by_link().get("/cluster").text
            assert server.ask("POST", "/when", {"cpus": 1}).status == 502
        finally:
            slurm.start_controller()
        for job in jobs:
            assert server.finished(job)["state"] == "completed"
            assert server.output(job) == "once\n"
    finally:
        server.remove()


def test_draining_a_node_here_drains_it_in_slurm_and_the_other_way_round(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    def state() -> tuple[str, str | None]:
        node = next(node for node in server.ask("GET", "/nodes").json["items"] if node["name"] == "n3")
        return node["state"], node["reason"]

    def in_slurms_words() -> str:
        return slurm.run("sinfo", "-h", "-n", "n3", "-o", "%T %E").strip()

    assert server.ask("POST", "/nodes/n3/drain", {"reason": "new fan; rm -rf"}).status == 200
    assert in_slurms_words() == "drained new fan; rm -rf"
    assert state() == ("drained", "new fan; rm -rf")
    assert server.ask("POST", "/nodes/n3/resume").status == 200
    wait_for(lambda: in_slurms_words() == "idle none", "Slurm uses it again", in_slurms_words)
    slurm.run("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=by hand")
    wait_for(lambda: state() == ("drained", "by hand"), "it shows here", state)
    assert server.ask("POST", "/nodes/n3/resume").status == 200
    wait_for(lambda: state()[0] == "up", "it is used again", state)


def test_the_doctor_examines_the_way_to_slurm(server: RunningServer) -> None:
    findings = server.ask("GET", "/doctor").json
    words = " ".join(finding["message"] for finding in findings["findings"] if finding["check"] == "slurm")
    assert "slurmctld responds." in words
    assert "4 nodes with 16 GPUs." in words
    assert "The accounting responds." in words
