"""Where jobs go in a real Slurm, what is refused before it gets there, and what is set aside."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.slurm_cluster import SlurmTestCluster

SETTINGS = """\
server.engine = "slurm"
slurm.partition = "main"
slurm.data_classes = { 2 = "partition=secure" }
slurm.labels = { "disk=ssd" = "feature=fast", short = "partition=short", gone = "partition=gone" }
slurm.qos = { urgent = "normal" }
slurm.gpu_types = { Tesla-T4 = "t4" }
"""
pytestmark = needs_root


@pytest.fixture(scope="module")
def partitions(slurm: SlurmTestCluster) -> Iterator[None]:
    slurm.run("scontrol", "create", "PartitionName=secure", "Nodes=n4", "State=UP")
    slurm.run("scontrol", "create", "PartitionName=short", "Nodes=n[1-2]", "State=UP", "MaxTime=30", "MaxNodes=1")
    yield
    for name in ("secure", "short"):
        with contextlib.suppress(subprocess.CalledProcessError):  # a restarted controller has forgotten them
            slurm.run("scontrol", "delete", f"PartitionName={name}")


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, partitions: None) -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    yield server
    server.remove()


def where(server: RunningServer, **body: Any) -> str:
    """Node and partition of a job that asks for this."""
    job = server.run(command=["sh", "-c", 'echo "$SLURMD_NODENAME $SLURM_JOB_PARTITION $SLURM_JOB_QOS"'], **body)
    assert job["state"] == "completed", job
    return server.output(job["id"]).strip()


def refused(server: RunningServer, **body: Any) -> str:
    answer = server.ask("POST", "/jobs", {"command": ["true"], **body})
    assert answer.status == 422, answer.body
    assert answer.error["hint"]
    return f"{answer.error['message']} {sorted(answer.error['fields'])}"


def test_labels_classes_types_and_data_go_where_the_settings_say(server: RunningServer) -> None:
    assert where(server, labels=["disk=ssd"]) == "n1 main normal"
    assert where(server, labels=["fast"], priority_class="urgent") == "n1 main normal"
    assert where(server, labels=["short"], time_limit="30m").endswith(" short normal")
    assert where(server, gpus=1, gpu_type="tesla-t4").startswith("n4 main")
    assert where(server, gpus=1, gpu_type="A100", labels=["disk=ssd"]).startswith("n1 main")
    assert server.ask("POST", "/departments", {"name": "clinic"}).status == 201
    made = server.ask("POST", "/projects", {"name": "tumours", "department": "clinic"})
    assert made.status == 201, made.body
    assert server.ask("PATCH", "/projects/tumours", {"data_class": 2}).status == 200
    assert where(server, project="tumours") == "n4 secure normal"
    assert "data (class 2)" in refused(server, project="tumours", gpus=1, gpu_type="a100")
    assert server.ask("PATCH", "/projects/tumours", {"data_class": 1}).status == 200
    assert "data_classes in [slurm]" in refused(server, project="tumours")


def test_what_slurm_could_never_run_is_refused_before_it_is_submitted(server: RunningServer) -> None:
    assert "['gpus']" in refused(server, gpus=0.5)
    assert "gpu_type" in refused(server, gpus=1, gpu_type="h100")
    assert "nope" in refused(server, labels=["nope"])
    assert "cpus" in refused(server, cpus=99)
    assert "tasks" in refused(server, tasks=5, cpus=16)
    assert "time limit of 30m" in refused(server, labels=["short"], time_limit="31m")
    assert "at most 1 nodes per job" in refused(server, labels=["short"], tasks=2, cpus=10)
    assert "gone" in refused(server, labels=["gone"])
    assert "short" in refused(server, labels=["short"], gpus=1, gpu_type="Tesla-T4")
    assert server.ask("PATCH", "/nodes/n2", {"labels": {"ours": ""}}).status == 200
    assert "features ours" in refused(server, labels=["ours"])


def reservation(name: str, **fields: Any) -> dict[str, Any]:
    begin = datetime.now(UTC) + timedelta(days=1)
    end = begin + timedelta(hours=2)
    return {"name": name, "nodes": ["n3"], "starts_at": begin.isoformat(), "ends_at": end.isoformat(), **fields}


def names(server: RunningServer) -> list[str]:
    return [one["name"] for one in server.ask("GET", "/reservations").json["items"]]


def test_reservations_are_made_listed_and_deleted_in_slurm(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    ann = two_unix_users[0]
    slurm.add_user(ann.name)
    assert server.run(ann.uid, command=["true"])["state"] == "completed"  # now she is known
    made = server.ask("POST", "/reservations", reservation("course", project="default", weeks=2))
    assert made.status == 201, made.body
    said = slurm.run("scontrol", "-o", "show", "reservation").splitlines()
    assert [line.split()[0] for line in said] == ["ReservationName=course-W1", "ReservationName=course-W2"]
    assert all(ann.name in line and "MAGNETIC" in line and "Nodes=n3 " in line for line in said)
    slurm.run(
        *("scontrol", "create", "reservation", "ReservationName=theirs", "Nodes=n2", "Users=root"),
        *("StartTime=now+1hour", "Duration=10", "Flags=IGNORE_JOBS"),
    )
    wait_for(lambda: names(server) == ["theirs", "course"], "theirs is listed too", lambda: names(server))
    whole = server.ask("POST", "/reservations", reservation("part", project="default", gpus_per_node=1))
    assert (whole.status, "whole nodes" in whole.error["message"]) == (422, True)
    slurm.run(
        "scontrol",
        "create",
        "reservation",
        "ReservationName=x",
        "Nodes=n1",
        "Users=root",
        "StartTime=now+1day",
        "Duration=600",
        "Flags=IGNORE_JOBS",
    )
    taken = server.ask("POST", "/reservations", reservation("y", nodes=["n1"], project="default"))
    assert (taken.status, "Slurm refused" in taken.error["message"]) == (409, True)
    assert "y" not in names(server)
    assert server.ask("DELETE", "/reservations/theirs").status == 409
    assert server.ask("DELETE", "/reservations/course").status == 204
    assert "course" not in slurm.run("scontrol", "-o", "show", "reservation")
    slurm.run("scontrol", "delete", "ReservationName=theirs")
    slurm.run("scontrol", "delete", "ReservationName=x")


def test_who_it_is_for_runs_in_a_reservation_unasked_and_others_wait(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    ann, bob = two_unix_users
    for person in two_unix_users:
        slurm.add_user(person.name)
        assert server.run(person.uid, command=["true"])["state"] == "completed"
    assert server.ask("POST", "/projects", {"name": "thesis", "department": "default"}).status == 201
    assert server.ask("PUT", f"/projects/thesis/members/{ann.name}", {"role": "member"}).status in (200, 204)
    now = datetime.now(UTC)
    wish = reservation("week", project="thesis", nodes=["n4"], starts_at=(now - timedelta(minutes=1)).isoformat())
    made = server.ask("POST", "/reservations", wish)
    assert made.status == 201, made.body
    try:
        waiting = server.submit(bob.uid, command=["true"], gpus=1, gpu_type="Tesla-T4", time_limit="5m")
        job = server.run(ann.uid, command=["true"], gpus=1, gpu_type="Tesla-T4", time_limit="5m")
        assert (job["state"], job["node"]) == ("completed", "n4")
        assert server.show(waiting, bob.uid)["state"] == "pending"
    finally:
        assert server.ask("DELETE", "/reservations/week").status == 204
    assert server.finished(waiting, bob.uid)["state"] == "completed"


def test_a_server_that_has_never_seen_slurm_accepts_and_hands_over_later(slurm: SlurmTestCluster) -> None:
    slurm.stop_daemon("slurmctld")
    started = False
    try:
        server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
        try:
            job = server.submit(command=["echo", "once"])
            slurm.start_controller()
            started = True
            assert server.finished(job)["state"] == "completed"
            assert server.output(job) == "once\n"
        finally:
            server.remove()
    finally:
        if not started:
            slurm.start_controller()
