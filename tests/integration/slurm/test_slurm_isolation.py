"""People who share a Slurm cannot get at each other's jobs, nor at what is Heliostat's own."""

import os
from collections.abc import Iterator
from shlex import quote

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.slurm_cluster import SlurmTestCluster

SETTINGS = 'server.engine = "slurm"\n'
OF_ROOT = {"HELIO_TEST_OF_ROOT": "a password", "SUDO_USER": "root", "SBATCH_ACCOUNT": "nobodys"}
SECRET = "swordfish"
# Says of each command that works that it does.
TRY = 'could() { if sh -c "$1" >/dev/null 2>&1; then echo "$1"; fi; }\n'
pytestmark = needs_root


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer(SETTINGS, {**os.environ, **OF_ROOT, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def admitted(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> list[Person]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    return two_unix_users


def could(server: RunningServer, person: Person, commands: list[str]) -> list[str]:
    """Those of the commands that work for them, tried in a job of theirs."""
    script = TRY + "".join(f"could {quote(command)}\n" for command in commands)
    job = server.run(person.uid, command=["bash", "-c", script], env={"SLURM_CONF": slurm_conf(server)})
    assert job["state"] == "completed", job
    return server.output(job["id"], person.uid).splitlines()


def slurm_conf(server: RunningServer) -> str:
    return server._environment["SLURM_CONF"]


@pytest.fixture(scope="module")
def running(server: RunningServer, slurm: SlurmTestCluster, admitted: list[Person]) -> Iterator[dict[str, str]]:
    """A job of the first person's, with a secret: its folder, its process and its number in Slurm."""
    ann = admitted[0]
    script = 'echo "$$ $SLURM_JOB_ID"; exec sleep 600'
    job = server.submit(ann.uid, command=["sh", "-c", script], env={"TOKEN": SECRET})
    wait_for(lambda: server.output(job, ann.uid).endswith("\n"), "it runs", lambda: server.show(job, ann.uid))
    pid, number = server.output(job, ann.uid).split()
    yield {"folder": f"{server.home}/jobs/{job}", "pid": pid, "number": number}
    server.ask("POST", f"/jobs/{job}/cancel", uid=ann.uid)


def test_only_the_owner_reads_the_folder_output_script_and_environment_of_a_job(
    server: RunningServer, admitted: list[Person], running: dict[str, str], slurm: SlurmTestCluster
) -> None:
    ann, bob = admitted
    folder, pid, number = running["folder"], running["pid"], running["number"]
    node = slurm.run("squeue", "-h", "-j", number, "-o", "%N").strip()
    commands = [
        f"cat {folder}/1.stdout",
        f"cat {folder}/1.receipt",
        f"ls {folder}/work",
        f"ls {folder}/checkpoints",
        f"ls {folder}/1.tasks",
        f"grep -qz {SECRET} /proc/{pid}/environ",
        f"scontrol write batch_script {number} - | grep {SECRET}",
        f"grep -q {SECRET} {slurm.folder}/spool/{node}/job{int(number):05}/slurm_script",
    ]
    assert could(server, ann, commands) == commands
    assert could(server, bob, commands) == []


def test_only_the_owner_signals_changes_or_enters_a_job(
    server: RunningServer, admitted: list[Person], running: dict[str, str]
) -> None:
    ann, bob = admitted
    pid, number = running["pid"], running["number"]
    commands = [
        f"kill -CONT {pid}",
        f"scancel --signal=CONT {number}",
        f"scontrol update JobId={number} JobName=changed",
        f"srun --jobid={number} --overlap /bin/true",
    ]
    assert could(server, ann, commands) == commands
    assert could(server, bob, [*commands, f"scancel {number}", f"scontrol requeue {number}"]) == []


def test_a_job_neither_reads_nor_changes_what_is_heliostats_own(
    server: RunningServer, admitted: list[Person], running: dict[str, str]
) -> None:
    ann, home = admitted[0], server.home
    commands = [
        f"touch {home}/mine",
        f"touch {home}/jobs/mine",
        f"touch {running['folder']}/mine",
        f"mv {running['folder']}/1.stdout {running['folder']}/2.stdout",
        f"rm -f {running['folder']}/1.stderr",
        f"ls {home}/attempts",
        f"cat {home}/heliostat.db",
        f"kill -CONT {server.pid}",
        f"grep -qz a. /proc/{server.pid}/environ",
    ]
    assert could(server, ann, commands) == []


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_job_has_its_users_groups_home_and_umask_and_nothing_of_roots(
    server: RunningServer, admitted: list[Person], tasks: int
) -> None:
    ann = admitted[0]
    script = (
        "id -u; id -g; id -G | tr ' ' '\\n' | sort -n | xargs; cd; pwd; umask; tr '\\0' '\\n' </proc/self/environ"
    )
    job = server.run(
        ann.uid, command=["sh", "-c", f'[ "${{SLURM_PROCID:-0}}" != 0 ] || {{ {script}; }}'], tasks=tasks
    )
    uid, gid, groups, home, umask, *environment = server.output(job["id"], ann.uid).splitlines()
    assert (uid, gid, home, umask) == (str(ann.uid), str(ann.gid), str(ann.home), "0022")
    assert groups.split() == [str(group) for group in sorted(os.getgrouplist(ann.name, ann.gid))]
    values = dict(line.partition("=")[::2] for line in environment)
    assert not values.keys() & OF_ROOT.keys()
    assert (values["USER"], values["LOGNAME"], values["HOME"]) == (ann.name, ann.name, str(ann.home))
    assert "/root" not in "".join(value for name, value in values.items() if name != "SLURM_CONF")
    assert not values.keys() & {"LC_ALL", "SLURM_TIME_FORMAT", "SLURM_GET_USER_ENV"}


def test_no_login_script_runs_before_a_job(server: RunningServer, admitted: list[Person]) -> None:
    ann = admitted[0]
    profile, ran = ann.home / ".profile", ann.home / "login-script-ran"
    profile.write_text(f"touch {ran}\n")
    os.chown(profile, ann.uid, ann.gid)
    job = server.run(ann.uid, command=["true"])
    assert (job["state"], ran.exists()) == ("completed", False)
