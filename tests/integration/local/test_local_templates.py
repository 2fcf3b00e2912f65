"""Parallel training on this machine: tasks that are started by a template find one another."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliostat.client import Client
from support.server_process import ServerProcess

WAIT_SECONDS = 90
# As torchrun does it: node 0 listens where all others find it; each starts a process for each of its GPUs.
TORCHRUN = """#!/usr/bin/python3
import os, socket, subprocess, sys
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
words = [word for word in sys.argv[1:] if not word.startswith("--")]
nodes, rank, each = int(options["nnodes"]), int(options["node-rank"]), int(options["nproc-per-node"])
where = (options["master-addr"], int(options["master-port"]))
if rank == 0:
    with socket.create_server(where, backlog=nodes) as server:
        others = [server.accept()[0] for _ in range(nodes - 1)]
    seen = sorted([0] + [int(other.makefile().readline()) for other in others])
    for other in others:
        other.sendall(f"{seen}\\n".encode())
        other.close()
else:
    for _ in range(3000):
        try:
            mine = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            import time
            time.sleep(0.02)
    mine.sendall(f"{rank}\\n".encode())
    seen = eval(mine.makefile().readline())
    mine.close()
for local in range(each):
    more = {"RANK": str(rank * each + local), "WORLD_SIZE": str(nodes * each), "LOCAL_RANK": str(local)}
    subprocess.run([sys.executable, *words, f"met={seen}"], env={**os.environ, **more}, check=True)
"""
MPIRUN = """#!/bin/sh
# As mpirun does it: -np N -machinefile FILE, a rank on each host of the file.
shift; number=$1; shift 2; file=$1; shift
rank=0
while read -r host; do
    OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$number "$@" "on=$host" || exit
    rank=$((rank + 1))
done <"$file"
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with ServerProcess(
        tmp_path_factory.mktemp("templates") / "home", server={"simulate_gpus": "6xA100"}, cpus=8
    ) as server:
        yield server.client


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """With tools of its own: PyTorch and MPI are not needed to see that tasks meet."""
    folder = tmp_path / "code"
    (folder / "bin").mkdir(parents=True)
    for name, text in (("torchrun", TORCHRUN), ("mpirun", MPIRUN)):
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    says = "print(env['RANK'], 'of', env['WORLD_SIZE'], env['CUDA_VISIBLE_DEVICES'], sys.argv[1:])"
    (folder / "train.py").write_text(f"import os, sys\nenv = os.environ\n{says}\n")
    return folder


def test_torchrun_in_each_of_three_tasks_meets_the_others(client: Client, code: Path) -> None:
    job = client.submit(
        ["python3", "train.py", "--lr", "0.1 $x"],
        upload=code,
        template="torchrun",
        tasks=3,
        gpus=2,
        cpus=1,
        env={"PATH": "bin:/usr/bin:/bin"},
    ).wait(WAIT_SECONDS)
    assert job.ok, job.logs()
    lines = sorted(job.logs("stdout").splitlines())
    assert [line.split()[:3] for line in lines] == [[str(rank), "of", "6"] for rank in range(6)]
    assert all(line.endswith("['0.1 $x', 'met=[0, 1, 2]']") for line in lines), lines
    devices = [set(line.split()[3].split(",")) for line in lines]
    assert all(len(own) == 2 for own in devices)
    assert devices[0] == devices[1]
    assert not devices[0] & devices[2]
    assert len(set().union(*devices)) == 6


def test_mpirun_is_started_once_with_the_host_of_each_task(client: Client, code: Path) -> None:
    says = 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE" "$@"'
    job = client.submit(
        ["/bin/sh", "-c", says, "solve", "a b"],
        upload=code,
        template="mpi",
        tasks=3,
        cpus=1,
        env={"PATH": "bin:/usr/bin:/bin"},
    ).wait(WAIT_SECONDS)
    assert job.ok, job.logs()
    assert job.logs("stdout").splitlines() == [f"{rank} of 3 a b on=localhost" for rank in range(3)]


def test_each_task_knows_its_index_their_count_and_all_hosts(client: Client) -> None:
    says = 'echo "$HELIOSTAT_TASK_INDEX $HELIOSTAT_TASK_COUNT $HELIOSTAT_TASK_HOSTS"'
    job = client.submit(says, tasks=2, cpus=1).wait(WAIT_SECONDS)
    hosts = "localhost,localhost"
    assert sorted(job.logs("stdout").splitlines()) == [f"0 2 {hosts}", f"1 2 {hosts}"]


def test_a_template_without_its_tool_says_what_is_missing(client: Client) -> None:
    job = client.submit(["train.py"], template="torchrun").wait(WAIT_SECONDS)
    assert job.exit_code == 127
    assert "torchrun" in job.logs("stderr")
