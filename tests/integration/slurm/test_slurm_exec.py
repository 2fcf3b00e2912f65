"""A command inside a job that runs in a real Slurm."""

import os
from collections.abc import Iterator

import pytest

from heliostat.client import Client
from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root, python_for
from support.job_exec import exec_in_job, start_sleeping_job
from support.slurm_cluster import SlurmTestCluster
from support.terminal import TerminalProcess

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def job(server: RunningServer, two_unix_users: list[Person]) -> Iterator[int]:
    ann = two_unix_users[0].uid
    job = start_sleeping_job(
        server, ann, gpus=2, gpu_type="t4", env={"TOKEN": "sword fish", "LD_PRELOAD": "/nonexistent.so"}
    )
    yield job
    server.ask("POST", f"/jobs/{job}/cancel", uid=ann)


def test_a_command_is_a_step_of_the_job_with_its_gpus_environment_and_folder(
    server: RunningServer, job: int, two_unix_users: list[Person]
) -> None:
    ann = two_unix_users[0]
    script = (
        "echo $TOKEN; echo $HELIOSTAT_NODE; echo $CUDA_VISIBLE_DEVICES; pwd; id -u; id -G; echo $SLURM_STEP_ID"
    )
    ran = exec_in_job(server, job, "sh", "-c", script, uid=ann.uid)
    token, node, gpus, folder, uid, groups, step = ran.stdout.splitlines()
    assert (token, node, gpus, uid) == ("sword fish", "n4", "0,1", str(ann.uid))
    assert (folder, step.isdecimal()) == (f"{server.home}/jobs/{job}/work", True)
    assert sorted(map(int, groups.split())) == sorted(os.getgrouplist(ann.name, ann.gid))
    left = (server.home / "jobs" / str(job)).glob
    wait_for(lambda: not list(left("inside-*")), "nothing of it is left")


def test_nothing_the_user_has_set_acts_on_this_machine(
    server: RunningServer, job: int, two_unix_users: list[Person]
) -> None:
    ran = exec_in_job(server, job, "/bin/true", uid=two_unix_users[0].uid)
    complaints = [line for line in ran.stderr.splitlines() if "LD_PRELOAD" in line]
    assert len(complaints) == 1, ran.stderr  # of the command itself: neither of setpriv nor of srun


def test_streams_and_the_exit_code_are_the_commands(
    server: RunningServer, job: int, two_unix_users: list[Person]
) -> None:
    ran = exec_in_job(
        server, job, "sh", "-c", "read x; echo $x; exit 7", uid=two_unix_users[0].uid, stdin=b"one\n"
    )
    assert (ran.exit_code, ran.stdout) == (7, "one\n")
    missing = exec_in_job(server, job, "no-such-command", uid=two_unix_users[0].uid)
    assert (missing.exit_code, "no-such-command" in missing.stderr) == (127, True)


def test_nobody_else_enters(server: RunningServer, job: int, two_unix_users: list[Person]) -> None:
    for uid in (two_unix_users[1].uid, None):
        answer = server.ask("POST", f"/jobs/{job}/exec", raw=b'{"command": ["true"]}\n', uid=uid)
        assert answer.status == 403


def test_it_ends_when_nobody_listens_and_the_job_goes_on(server: RunningServer, slurm: SlurmTestCluster) -> None:
    job = start_sleeping_job(server)
    try:
        told = iter(Client(home=server.home).jobs.start_exec(job, ["sh", "-c", "echo first; exec sleep 600"]))
        assert next(told).data == b"first\n"
        number = slurm.run("squeue", "-h", "--me", "-t", "R", "-o", "%A").split()[0]

        def steps() -> list[str]:
            lines = slurm.run("squeue", "-h", "-s", "-j", number, "-o", "%i").split()
            return [line for line in lines if line.split(".")[1].isdecimal()]

        wait_for(lambda: len(steps()) == 1, "the step is there", steps)
        told.close()  # type: ignore[attr-defined]
        wait_for(lambda: not steps(), "the step has ended", steps)
        assert server.show(job)["state"] == "running"
    finally:
        server.ask("POST", f"/jobs/{job}/cancel")


def test_a_shell_is_on_a_terminal_inside_the_allocation(
    server: RunningServer, job: int, two_unix_users: list[Person], slurm: SlurmTestCluster
) -> None:
    ann = two_unix_users[0]
    python, environment = python_for(ann)
    home = {"HELIOSTAT_HOME": str(server.home)}
    me = TerminalProcess(["ssh", str(job), "sh"], {**environment, **home}, uid=ann.uid, python=python)
    me.type("tty; echo $HELIOSTAT_NODE-$TOKEN-$SLURM_STEP_ID.\n")
    assert "/dev/pts/" in me.wait_for_output("n4-sword fish-")
    assert me.wait_for_output(".").isdecimal()
    me.resize(31, 91)
    me.type("while [ \"$(stty size)\" != '31 91' ]; do sleep 0.05; done; echo now-$((1+1))\n")
    me.wait_for_output("now-2")
    me.type("exit 7\n")
    assert me.wait_for_exit() == 7
