"""What people do with Slurm's own tools shows in Heliostat, soon and rightly."""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from integration.web.surfing import Surfer
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


def number_of(server: RunningServer, job: int, attempt: int = 1) -> str:
    """In Slurm."""
    trace = server.home / "attempts" / f"{job}.{attempt}.slurm"
    wait_for(lambda: trace.exists() and "job" in trace.read_text(), f"{trace} has a number")
    return trace.read_text().split()[3]


def running(server: RunningServer, **wish: Any) -> tuple[int, str]:
    job = server.submit(**{"command": ["sh", "-c", "echo it; sleep 600"], **wish})
    wait_for(lambda: server.show(job)["state"] == "running", "it runs", lambda: server.show(job))
    return job, number_of(server, job)


def test_a_running_job_that_slurm_requeues_waits_and_starts_again_as_a_new_attempt(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    job, number = running(server)
    wait_for(lambda: server.output(job) == "it\n", "its output")
    slurm.run("scontrol", "update", f"JobId={number}", "Requeue=1")
    slurm.run("scontrol", "requeue", number)
    wait_for(lambda: server.show(job)["state"] == "pending", "it waits", lambda: server.show(job))
    wait_for(lambda: server.show(job)["state"] == "running", "it runs again", lambda: server.show(job))
    shown = server.show(job)
    assert [(one["number"], one["state"]) for one in shown["attempts"]] == [(1, "cancelled"), (2, "running")]
    assert number_of(server, job, 2) == number
    wait_for(lambda: server.output(job) == "it\n", "the output of the second only")
    slurm.run("scancel", number)
    ended = server.finished(job)
    assert (ended["state"], ended["attempt"]) == ("cancelled", 2)
    assert "Slurm's own tools" in ended["reason"]


def test_a_job_requeued_and_held_says_so_and_goes_on_when_it_is_released(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    job, number = running(server)
    slurm.run("scontrol", "update", f"JobId={number}", "Requeue=1")
    slurm.run("scontrol", "requeuehold", number)
    wait_for(lambda: server.show(job)["state"] == "pending", "it waits", lambda: server.show(job))
    wait_for(lambda: "held" in (server.show(job)["reason"] or ""), "it is held", lambda: server.show(job))
    why = server.ask("GET", f"/jobs/{job}/why").json
    assert (why["blocked_by"], why["position"], why["forecast"]) == ("held", None, None)
    slurm.run("scontrol", "release", number)
    wait_for(lambda: server.show(job)["state"] == "running", "it runs again", lambda: server.show(job))
    server.ask("POST", f"/jobs/{job}/cancel")
    assert server.finished(job)["state"] == "cancelled"


def test_a_suspended_job_says_so_and_its_time_stands_still(server: RunningServer, slurm: SlurmTestCluster) -> None:
    job, number = running(server, time_limit="600s")
    slurm.run("scontrol", "suspend", number)
    wait_for(lambda: "suspended" in (server.show(job)["reason"] or ""), "it says so", lambda: server.show(job))
    assert server.show(job)["state"] == "running"
    assert "scontrol resume" in server.ask("GET", f"/jobs/{job}/why").json["sentence"]
    slurm.run("scontrol", "resume", number)
    wait_for(lambda: not server.show(job)["reason"], "it goes on", lambda: server.show(job))
    slurm.run("scontrol", "update", f"JobId={number}", "TimeLimit=90")
    wait_for(lambda: server.show(job)["time_limit_seconds"] == 5400, "its limit", lambda: server.show(job))
    slurm.run("scontrol", "suspend", number)
    wait_for(lambda: "suspended" in (server.show(job)["reason"] or ""), "it says so", lambda: server.show(job))
    server.ask("POST", f"/jobs/{job}/cancel")
    assert server.finished(job)["state"] == "cancelled"


def test_who_waits_is_told_why_where_in_line_and_when(server: RunningServer, slurm: SlurmTestCluster) -> None:
    first, _ = running(server, gpus=4, gpu_type="t4", time_limit="600s")
    second = server.submit(command=["true"], gpus=4, gpu_type="t4", time_limit="600s")
    number_of(server, second)  # it is in Slurm before the third
    third = server.submit(command=["true"], gpus=4, gpu_type="t4", time_limit="600s")
    number = number_of(server, third)

    def why(job: int) -> dict[str, Any]:
        told: dict[str, Any] = server.ask("GET", f"/jobs/{job}/why").json
        return told

    wait_for(lambda: why(third)["position"] == 2, "it is second in line", lambda: why(third))
    wait_for(lambda: why(second)["forecast"], "Slurm has a plan", lambda: why(second))
    wait_for(lambda: why(second)["blocked_by"] == "resources", "Slurm says what it lacks", lambda: why(second))
    told = why(second)
    assert told["forecast"]["source"] == "Slurm's plan"
    assert "in use" in told["sentence"]
    assert server.show(second)["forecast"]["source"] == "Slurm's plan"
    assert "Slurm&#39;s plan" in Surfer(server).by_link().get(f"/jobs/{second}").text
    asked = server.ask("POST", "/when", {"gpus": 4, "gpu_type": "t4", "time_limit": "600s"}).json
    assert asked["forecast"]["source"] == "Slurm's plan"
    assert (asked["starts_now"], asked["forecast"]["likely_at"] > told["forecast"]["likely_at"]) == (False, True)
    refused = server.ask("POST", "/when", {"labels": ["no-such-label"], "time_limit": "60s"})
    assert refused.status // 100 == 4, refused.body
    slurm.run("scontrol", "hold", number)
    wait_for(lambda: why(third)["blocked_by"] == "held", "it is held", lambda: why(third))
    slurm.run("scontrol", "release", number)
    wait_for(lambda: why(third)["position"] == 2, "it is in line again", lambda: why(third))
    server.ask("POST", f"/jobs/{first}/cancel")
    for job in (second, third):
        assert server.finished(job)["state"] == "completed"


def test_jobs_that_went_to_slurm_without_us_are_shown_and_counted(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    ann, bob = two_unix_users
    slurm.add_user(ann.name)
    name = "<b>evil\n99|RUNNING\x1b[2J"
    as_ann = (f"--uid={ann.uid}", f"--gid={ann.gid}", "--chdir=/")
    number = slurm.submit(
        "sleep 600", "--gres=gpu:t4:2", "-c2", "--mem=200M", "-w", "n4", f"--job-name={name}", *as_ann
    )
    array = slurm.submit("sleep 600", "--array=1-5", "--gres=gpu:t4:4", *as_ann)

    def others(uid: int | None = None) -> dict[str, Any]:
        return {one["id"]: one for one in server.ask("GET", "/foreign-jobs", uid=uid).json["items"]}

    key, waits = f"slurm:{number}", f"slurm:{array}"
    wait_for(lambda: others().get(key, {}).get("devices") and waits in others(), "they are shown", others)
    seen = others()
    job = seen[key]
    assert (job["user"], job["state"], job["gpus"], job["cpus"], job["nodes"]) == (
        ann.name,
        "running",
        2,
        2,
        ["n4"],
    )
    assert (job["devices"], job["memory_mib"]) == (["n4:0", "n4:1"], 200)
    assert job["name"] == "<b>evil 99|RUNNING [2J"
    assert (seen[waits]["state"], seen[waits]["tasks"]) == ("pending", 5)
    assert others(ann.uid)[key]["name"] == job["name"]
    assert (others(bob.uid)[key]["name"], others(bob.uid)[waits]["reason"]) == (None, None)
    node = server.ask("GET", "/nodes/n4").json
    assert (node["gpus_used"], node["foreign_jobs"], node["jobs"]) == (2, [key], [])
    assert ann.name in node["devices"][0]["used_outside"]
    assert node["devices"][2]["used_outside"] is None
    surfer = Surfer(server).by_link()
    for path in ("/jobs?whose=all", "/cluster/n4", "/cluster"):
        page = surfer.get(path).text
        assert (key in page, "<b>evil" in page) == (True, False), path
    slurm.run("scancel", str(number), str(array))
    wait_for(lambda: not others(), "they are gone", others)


def test_jobs_of_a_node_that_fails_are_lost_or_wait_again_as_slurm_was_told(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    lost, _ = running(server, labels=["fast"])
    again, number = running(server, labels=["fast"])
    slurm.run("scontrol", "update", f"JobId={number}", "Requeue=1")
    slurm.run("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=broken")
    try:
        ended = server.finished(lost)
        assert (ended["state"], ended["reason"]) == ("lost", "its node failed")
        wait_for(lambda: server.show(again)["state"] == "pending", "it waits", lambda: server.show(again))
    finally:
        with contextlib.suppress(subprocess.CalledProcessError):  # it may have come back by itself
            slurm.run("scontrol", "update", "NodeName=n1", "State=RESUME")
    wait_for(lambda: server.show(again)["state"] == "running", "it runs again", lambda: server.show(again))
    assert server.show(again)["attempt"] == 2
    server.ask("POST", f"/jobs/{again}/cancel")
    assert server.finished(again)["state"] == "cancelled"


def test_a_server_killed_while_a_job_is_requeued_loses_and_doubles_nothing(
    slurm: SlurmTestCluster,
) -> None:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    try:
        job, number = running(server)
        os.kill(server.pid, signal.SIGKILL)
        server.process.wait(120)
        slurm.run("scontrol", "update", f"JobId={number}", "Requeue=1")
        slurm.run("scontrol", "requeue", number)
        server.start()
        wait_for(lambda: server.show(job)["attempt"] == 2, "it is the next attempt", lambda: server.show(job))
        wait_for(lambda: server.show(job)["state"] == "running", "it runs again", lambda: server.show(job))
        assert number_of(server, job, 2) == number
        server.ask("POST", f"/jobs/{job}/cancel")
        assert server.finished(job)["state"] == "cancelled"
        assert number not in slurm.run("squeue", "-h", "-t", "PD,R", "-o", "%A").split()
    finally:
        server.remove()
