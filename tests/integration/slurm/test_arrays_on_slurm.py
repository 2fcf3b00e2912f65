"""Arrays on a real Slurm: one submission, and each element a job of its own."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.slurm_cluster import SlurmTestCluster

SETTINGS = 'server.engine = "slurm"\n'
pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    yield server
    server.remove()


def submit_array(server: RunningServer, array: str, uid: int | None = None, **body: object) -> list[int]:
    answer = server.ask("POST", "/jobs", {"array": array, "cpus": 1, "memory": "64M", **body}, uid=uid)
    assert answer.status == 201, answer.body
    ids: list[int] = answer.json["job_ids"]
    return ids


def all_over(server: RunningServer, ids: list[int], uid: int | None = None) -> list[dict[str, Any]]:
    def late() -> list[tuple[int, str, str]]:
        unfinished = server.ask("GET", "/jobs?unfinished=true&limit=1000", uid=uid).json["items"]
        return [(job["id"], job["state"], job["reason"]) for job in unfinished if job["id"] in ids]

    wait_for(lambda: not late(), "all are over", late)
    return [server.show(job, uid) for job in ids]


def arrays_in_slurm(slurm: SlurmTestCluster, name: str) -> list[str]:
    """`ARRAY_INDEX STATE` of every element with this name."""
    return slurm.run("squeue", "-h", "--array", "-t", "all", f"--name={name}", "-o", "%i %T").splitlines()


def test_each_element_runs_as_its_owner_with_its_own_number_index_folder_and_logs(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    ann = two_unix_users[0]
    slurm.add_user(ann.name)
    script = (
        'id -un; echo "$HELIOSTAT_JOB_ID $HELIOSTAT_ARRAY_INDEX $HELIOSTAT_ATTEMPT_ID"; pwd; echo e >&2; exit $1'
    )
    command = ["sh", "-c", f"set -- $((HELIOSTAT_ARRAY_INDEX % 2)); {script}"]
    ids = submit_array(server, "3-8", ann.uid, command=command, name="own", env={"folder": "x"})
    jobs = all_over(server, ids, ann.uid)
    for index, job in zip(range(3, 9), jobs, strict=True):
        number = job["id"]
        folder = server.home / "jobs" / str(number)
        assert server.output(number, ann.uid) == f"{ann.name}\n{number} {index} {number}.1\n{folder}/work\n"
        assert server.output(number, ann.uid, "stderr") == "e\n"
        assert (job["state"], job["exit_code"]) == (("failed", 1) if index % 2 else ("completed", 0))
    rows = arrays_in_slurm(slurm, "own")
    assert len({row.partition("_")[0] for row in rows}) == 1, rows
    assert sorted(row.split()[0].partition("_")[2] for row in rows) == list("345678")


def test_no_more_run_than_the_limit_and_single_elements_are_cancelled_held_and_released(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    go = server.folder / "go"
    ids = submit_array(
        server, "0-5%2", command=["sh", "-c", f"while [ ! -e {go} ]; do sleep 0.1; done"], name="lim"
    )

    def states() -> list[str]:
        return [server.show(job)["state"] for job in ids]

    wait_for(lambda: states().count("running") == 2, "two run", states)
    wait_for(lambda: len(arrays_in_slurm(slurm, "lim")) == 6, "all are in Slurm")
    assert states()[2:] == ["pending"] * 4
    server.ask("POST", f"/jobs/{ids[2]}/cancel")
    server.ask("POST", f"/jobs/{ids[3]}/hold")
    server.ask("POST", f"/jobs/{ids[0]}/cancel")
    wait_for(lambda: states()[0] == "cancelled", "a running one ends", states)
    wait_for(lambda: states().count("running") == 2, "the next begins", states)
    slurm.run("scancel", next(row.split()[0] for row in arrays_in_slurm(slurm, "lim") if "PENDING" in row))
    wait_for(lambda: states()[5] == "cancelled", "scancel of one that waits shows", states)
    assert states() == ["cancelled", "running", "cancelled", "held", "running", "cancelled"]
    go.touch()
    server.ask("POST", f"/jobs/{ids[3]}/release")
    jobs = all_over(server, ids)
    assert [job["state"] for job in jobs][3] == "completed"
    assert server.ask("GET", f"/jobs/{ids[3]}").json["attempt"] == 2


def test_one_running_element_is_given_more_time(server: RunningServer, slurm: SlurmTestCluster) -> None:
    ids = submit_array(server, "0-1", command=["sleep", "600"], name="longer", time_limit="1h")
    wait_for(lambda: server.show(ids[1])["state"] == "running", "the second runs", lambda: server.show(ids[1]))
    answer = server.ask("POST", f"/jobs/{ids[1]}/extend", {"time": "1h"})
    assert (answer.status, answer.json["time_limit_seconds"]) == (200, 7200), answer.body
    limits = slurm.run("squeue", "-h", "--array", "--name=longer", "-o", "%K %l").splitlines()
    assert sorted(limits) == ["0 1:02:00", "1 2:02:00"]
    server.ask("POST", "/jobs/cancel", {"job_ids": ids})
    all_over(server, ids)


def test_a_server_killed_while_it_hands_over_doubles_and_loses_no_element(slurm: SlurmTestCluster) -> None:
    server = RunningServer(SETTINGS, {**os.environ, **slurm.env})
    try:
        for delay in (0.05, 0.15, 0.3):
            ids = submit_array(server, "0-19", command=["echo", "once"], name=f"kill{delay}")
            time.sleep(delay)  # the moment is not to be known
            os.kill(server.pid, signal.SIGKILL)
            server.process.wait(120)
            server.start()
            jobs = all_over(server, ids)
            assert {job["state"] for job in jobs} == {"completed"}
            outputs = ["".join(_outputs(server.home / "jobs" / str(job))) for job in ids]
            assert outputs == ["once\n"] * 20
    finally:
        server.remove()


def _outputs(folder: Path) -> list[str]:
    """Of all attempts."""
    return [path.read_text() for path in folder.glob("*.stdout")]


def test_a_thousand_elements_are_handed_over_with_one_submission(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    ids = submit_array(server, "1-1000%1", command=["sleep", "600"], name="many")
    wait_for(lambda: len(arrays_in_slurm(slurm, "many")) == 1000, "all are in Slurm")
    assert len({row.partition("_")[0] for row in arrays_in_slurm(slurm, "many")}) == 1
    server.ask("POST", "/jobs/cancel", {"job_ids": ids})
    wait_for(
        lambda: not [row for row in arrays_in_slurm(slurm, "many") if "CANCELLED" not in row], "all have left"
    )


def test_an_array_larger_than_its_owner_may_have_in_slurm_goes_through_in_parts(
    server: RunningServer, slurm: SlurmTestCluster, two_unix_users: list[Person]
) -> None:
    bob = two_unix_users[1]
    slurm.add_user(bob.name)
    slurm.run("sacctmgr", "-i", "-Q", "modify", "user", bob.name, "set", "MaxSubmitJobs=4", "MaxWall=60")
    try:
        ids = submit_array(server, "0-10", bob.uid, command=["sleep", "1"], name="parts")
        wait_for(
            lambda: "limit of jobs in the queue" in server.show(ids[-1], bob.uid)["reason"],
            "those that are left say why",
            lambda: server.show(ids[-1], bob.uid)["reason"],
        )
        assert {job["state"] for job in all_over(server, ids, bob.uid)} == {"completed"}
    finally:
        slurm.run("sacctmgr", "-i", "-Q", "modify", "user", bob.name, "set", "MaxSubmitJobs=-1", "MaxWall=-1")
