"""Uploaded code and parallel training on a real Slurm."""

import hashlib
import os
from collections.abc import Iterator

import pytest

from integration.running_server import RunningServer
from integration.unix_users import needs_root
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root
# Meets the others as torchrun does. All nodes of this Slurm are one machine, whatever they are called.
TORCHRUN = b"""#!/usr/bin/python3
import os, socket, sys, time
options = dict(word[2:].split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
nodes, rank, port = int(options["nnodes"]), int(options["node-rank"]), int(options["master-port"])
if rank == 0:
    with socket.create_server(("127.0.0.1", port), backlog=nodes) as server:
        others = [server.accept()[0] for _ in range(nodes - 1)]
    for other in others:
        other.sendall(b"go\\n")
        other.close()
else:
    while True:
        try:
            mine = socket.create_connection(("127.0.0.1", port))
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    assert mine.makefile().readline() == "go\\n"
words = [word for word in sys.argv[1:] if not word.startswith("--")]
print(rank, "of", nodes, "met at", options["master-addr"], os.environ["HELIOSTAT_TASK_HOSTS"], words, flush=True)
"""
MPIRUN = b"""#!/bin/sh
echo "np=$2"; cat "$4"; shift 4; exec "$@"
"""


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster) -> Iterator[RunningServer]:
    server = RunningServer('server.engine = "slurm"\n', {**os.environ, **slurm.env})
    yield server
    server.remove()


@pytest.fixture(scope="module")
def upload(server: RunningServer) -> str:
    """The id of a folder with tools of its own."""
    files, body = [], b""
    for name, content in (("bin/torchrun", TORCHRUN), ("bin/mpirun", MPIRUN)):
        digest = hashlib.sha256(content).hexdigest()
        files.append({"path": name, "sha256": digest, "size": len(content), "executable": True})
        body += f"{digest} {len(content)}\n".encode() + content
    assert server.ask("POST", "/uploads/blobs", raw=body).status == 200
    answer = server.ask("POST", "/uploads", {"files": files}).json
    assert answer["missing"] == []
    number: str = answer["id"]
    return number


def _run(server: RunningServer, upload: str, **body: object) -> list[str]:
    env = {"PATH": f"bin:{os.environ['PATH']}"}
    job = server.run(upload=upload, env=env, cpus=1, memory=64, **body)
    assert job["state"] == "completed", server.output(job["id"], stream="stderr")
    return server.output(job["id"]).splitlines()


def test_torchrun_in_each_of_three_tasks_meets_the_others(server: RunningServer, upload: str) -> None:
    words = ["python", "train.py", "a b"]
    lines = sorted(_run(server, upload, command=words, tasks=3, layout="spread", template="torchrun"))
    hosts = lines[0].split()[6].split(",")
    assert len(set(hosts)) == 3
    told = f"met at {hosts[0]} {','.join(hosts)} ['train.py', 'a b']"
    assert lines == [f"{rank} of 3 {told}" for rank in range(3)]


def test_mpirun_is_started_once_with_the_host_of_each_task(server: RunningServer, upload: str) -> None:
    says = ["sh", "-c", 'echo "$HELIOSTAT_TASK_HOSTS"; ls']
    number, first, second, hosts, work = _run(
        server, upload, command=says, tasks=2, layout="spread", template="mpi"
    )
    assert (number, hosts, work) == ("np=2", f"{first},{second}", "bin")
    assert first != second


def test_each_element_of_an_array_has_a_copy_of_its_own(server: RunningServer, upload: str) -> None:
    body = {"command": ["sh", "-c", "pwd; ls"], "upload": upload, "array": "0-1", "cpus": 1, "memory": 64}
    ids = server.ask("POST", "/jobs", body).json["job_ids"]
    for number in ids:
        assert server.finished(number)["state"] == "completed"
        assert server.output(number) == f"{server.home}/jobs/{number}/work\nbin\n"
