"""`helio slurm setup` as docs/admins.md tells a new admin, on two machines with systemd and nothing of Slurm:
packages, services, nodes, a person's job and its report, a change."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.running_server import wait_for
from support.systemd_machines import SystemdMachine, booted_machines, machines_skip_reason

LOOK = "apt-get -qq update; apt-get -qq -y install --no-install-recommends slurmd >&2; slurmd -C; nvidia-smi -L"
SERVICES = "munge mariadb slurmdbd slurmctld slurmd"
REPORT = "python3 -c 'kept = bytearray(80 << 20); print(len(kept))'"


@pytest.fixture(scope="module")
def both() -> Iterator[list[SystemdMachine]]:
    if why := machines_skip_reason():
        pytest.skip(why)
    with booted_machines("gpu1", "gpu2") as found:
        for one in found:
            one.run("useradd --create-home --uid 2001 ann")
        yield found


@pytest.fixture(scope="module")
def ready(both: list[SystemdMachine]) -> list[SystemdMachine]:
    """Set up, in the words of the documentation."""
    gpu1, gpu2 = both
    gpu1.run("""(echo 'cluster = "lab"'; echo 'controller = "gpu1"') > nodes.toml""")
    with ThreadPoolExecutor() as at_once:
        looks = at_once.map(lambda one: one.run(LOOK, check=False).stdout, both)
        for said in looks:
            gpu1.run("helio slurm setup node --from - >> nodes.toml", said)
    assert (
        "Missing packages: mariadb-server, slurm-client, slurmctld, slurmdbd"
        in gpu1.run("helio slurm setup plan").stdout
    )
    done = gpu1.run("helio slurm setup apply --install").stdout
    assert done.splitlines()[-1] == "Slurm is set up.", done
    join(gpu1, gpu2)
    used = gpu1.run("helio slurm setup apply --use").stdout
    assert "Heliostat now uses Slurm. Start it: helio up --background\n" in used
    gpu1.run("helio up --background")
    gpu1.run("helio user create ann --unix-user ann")
    gpu1.run("helio slurm apply")
    return both


def join(gpu1: SystemdMachine, gpu2: SystemdMachine) -> str:
    """As through ssh."""
    script = gpu1.run("helio slurm setup node-script --with-key | cat").stdout
    said = gpu2.run("sh", script).stdout
    wait_for(lambda: states(gpu1) == ["gpu1 idle", "gpu2 idle"], "nodes", lambda: [said, states(gpu1)])
    return said


def states(gpu1: SystemdMachine) -> list[str]:
    return gpu1.run("sinfo -h -N -o '%N %T'", check=False).stdout.splitlines()


def of_ann(gpu1: SystemdMachine, line: str) -> str:
    done = gpu1.run(f"cd /home/ann; runuser -u ann -- {line}", check=False)
    assert done.returncode == 0, done.stdout + done.stderr + gpu1.run("helio ps --all", check=False).stdout
    return done.stdout


def test_a_job_of_a_person_runs_through_slurm_and_has_its_report(ready: list[SystemdMachine]) -> None:
    gpu1, _ = ready
    assert of_ann(gpu1, f"timeout 60 helio run --memory 200M --follow -- {REPORT}") == f"{80 << 20}\n"
    report = of_ann(gpu1, "helio show 1")
    assert "state       completed" in report
    assert "node        gpu" in report
    wait_for(lambda: "CPU time" in of_ann(gpu1, "helio show 1"), "the accounting")
    assert (
        "out of memory"
        in gpu1.run(
            f"cd /; runuser -u ann -- timeout 60 helio run --memory 50M --follow -- {REPORT}", check=False
        ).stderr
    )


def test_the_tasks_of_a_gang_run_on_both_nodes(ready: list[SystemdMachine]) -> None:
    gpu1, _ = ready
    gang = "timeout 60 helio run --memory 100M --tasks 2 --layout spread --follow -- hostname"
    assert sorted(of_ann(gpu1, gang).split()) == ["gpu1", "gpu2"]


def test_the_doctor_finds_no_problem_and_slurm_has_all_that_its_accounts_want(ready: list[SystemdMachine]) -> None:
    gpu1, _ = ready
    found = gpu1.run("helio doctor --probe").stdout
    assert "No problems: jobs can run." in found
    assert "of partition main can use /srv/heliostat, has the same ids for 2 users" in found
    plan = gpu1.run("helio slurm plan").stdout
    assert "as it is set up" not in plan
    assert "Slurm's accounts on lab are up to date" in plan


def test_repeated_it_changes_nothing(ready: list[SystemdMachine]) -> None:
    gpu1, gpu2 = ready
    assert gpu1.run("helio slurm setup apply").stdout == "Slurm is set up; nothing had to be changed.\n"
    assert join(gpu1, gpu2) == "nothing to change\n"
    assert gpu1.run(f"systemctl is-enabled {SERVICES}").stdout.split() == ["enabled"] * 5
    assert gpu2.run("systemctl is-enabled munge slurmd").stdout.split() == ["enabled"] * 2
    gpu1.run("cp nodes.toml /tmp")
    assert "can be read only by root" in of_ann(gpu1, "helio slurm setup plan --nodes /tmp/nodes.toml")


def test_a_node_whose_gpus_are_new_is_used_again_and_a_late_gpu_is_waited_for(ready: list[SystemdMachine]) -> None:
    gpu1, gpu2 = ready
    gpu1.run("""sed -i 's/name = "gpu2"/&\\ngpus = { a100 = 1 }/' nodes.toml""")
    assert "Started slurmctld." in gpu1.run("helio slurm setup apply").stdout
    gpu2.run("(sleep 3; mknod -m 666 /dev/nvidia0 c 195 0) >/dev/null 2>&1 &")
    assert "starting slurmd\n" in join(gpu1, gpu2)
    job = "timeout 60 helio run --memory 100M --gpus 1 --follow -- sh -c 'hostname; echo $CUDA_VISIBLE_DEVICES'"
    assert of_ann(gpu1, job).split() == ["gpu2", "0"]
