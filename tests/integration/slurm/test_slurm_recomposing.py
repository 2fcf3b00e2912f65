"""A node of a real Slurm gets other GPUs while it runs."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.dynamic_slurm_node import NODE_NAME, DynamicSlurmNode, running_dynamic_node
from support.slurm_cluster import SlurmTestCluster

pytestmark = needs_root


@pytest.fixture(scope="module")
def node(slurm: SlurmTestCluster) -> Iterator[DynamicSlurmNode]:
    with running_dynamic_node(slurm, "gpu:a100:2") as made:
        wait_for(lambda: gres(slurm) == "gpu:a100:2", "it has joined", lambda: slurm.run("sinfo", "-N"))
        yield made


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, node: DynamicSlurmNode) -> Iterator[RunningServer]:
    command = json.dumps([str(node.command), "{verb}", "{node}", "{conf}"])
    settings = f'server.engine = "slurm"\nslurm.node_command = {command}\n'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    yield server
    server.remove()


def gres(slurm: SlurmTestCluster) -> str:
    return slurm.run("sinfo", "-h", "-N", "-n", NODE_NAME, "-o", "%G").strip()


def progress(server: RunningServer) -> dict[str, Any]:
    told: dict[str, Any] = server.ask("GET", f"/nodes/{NODE_NAME}/recompose").json
    return told


def recompose(server: RunningServer, **gpus: int) -> dict[str, Any]:
    answer = server.ask("POST", f"/nodes/{NODE_NAME}/recompose", {"gpus": gpus})
    assert answer.status == 200, answer.body
    begun: dict[str, Any] = answer.json
    return begun


def done(server: RunningServer) -> None:
    wait_for(lambda: progress(server)["is_done"], "it is done", lambda: progress(server))


def test_a_node_gets_more_gpus_when_its_job_has_ended_and_a_job_uses_them(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    go = server.folder / "go"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done"
    slurm_job = slurm.submit(script, "-w", NODE_NAME)
    wait_for(lambda: "R" in slurm.run("squeue", "-h", "-j", str(slurm_job), "-o", "%t"), "it runs")
    begun = recompose(server, a100=3, t4=2)
    assert (begun["at"], begun["is_done"]) == (0, False)
    wait_for(lambda: progress(server)["at"] == 1, "it waits", lambda: progress(server))
    go.touch()
    done(server)
    assert gres(slurm) == "gpu:a100:3,gpu:t4:2"
    assert slurm.run("sacct", "-nX", "-j", str(slurm_job), "-o", "State").strip() == "COMPLETED"
    wait_for(lambda: len(devices(server)) == 5, "Heliostat sees them", lambda: devices(server))
    ran = slurm.run("srun", "-w", NODE_NAME, "--gres=gpu:a100:3", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").strip()
    assert ran == "0,1,2"
    audit = server.ask("GET", "/audit?limit=5").json["items"]
    assert [one["action"] for one in audit][:1] == ["node.recompose"]


def devices(server: RunningServer) -> list[str]:
    answer = server.ask("GET", f"/nodes/{NODE_NAME}")
    return [device["type"] for device in answer.json["devices"]] if answer.status == 200 else []


def test_a_killed_server_goes_on_and_a_command_that_fails_is_tried_again(
    server: RunningServer, slurm: SlurmTestCluster, node: DynamicSlurmNode
) -> None:
    (node.folder / "broken").touch()
    recompose(server, a100=1)
    wait_for(lambda: "no such unit" in (progress(server)["error"] or ""), "it says why", lambda: progress(server))
    assert progress(server)["at"] == 4
    os.kill(server.pid, signal.SIGKILL)
    server.process.wait(120)
    (node.folder / "broken").unlink()
    server.start()
    done(server)
    wait_for(lambda: gres(slurm) == "gpu:a100:1", "it has one", lambda: gres(slurm))


def test_the_command_says_what_it_would_do_and_how_far_it_is(server: RunningServer) -> None:
    def helio(*words: str) -> str:
        argv = [sys.executable, "-m", "heliostat.cli.main", "node", "recompose", NODE_NAME, *words]
        environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
        return subprocess.run(argv, env=environment, capture_output=True, text=True, check=True).stdout

    lines = helio("--gpus", "a100=4", "--dry-run").splitlines()
    assert (len(lines), lines[2]) == (6, f"  3. Stop slurmd on {NODE_NAME}.")
    assert helio() == f"Node {NODE_NAME} is not being changed.\n"
    assert helio("--gpus", "a100=1") == f"Node {NODE_NAME} already has these GPUs.\n"


def test_a_node_of_slurm_conf_and_people_who_are_no_admins_are_refused(
    server: RunningServer, two_unix_users: list[Person]
) -> None:
    answer = server.ask("POST", "/nodes/n1/recompose", {"gpus": {"a100": 1}})
    assert (answer.status, "slurm.conf" in answer.error["message"]) == (409, True)
    bob = two_unix_users[1].uid
    for method, body in (("POST", {"gpus": {"a100": 1}}), ("GET", None)):
        assert server.ask(method, f"/nodes/{NODE_NAME}/recompose", body, uid=bob).status == 403
    assert server.ask("POST", f"/nodes/{NODE_NAME}/recompose", {"gpus": {"a;b": 1}}).status == 422
    assert server.ask("POST", "/nodes/none/recompose", {"gpus": {"a100": 1}}).status == 404
