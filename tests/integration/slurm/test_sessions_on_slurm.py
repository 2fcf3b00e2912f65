"""Sessions on the nodes of a real Slurm: they come up, stay up, get more time, and move to another node."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.proxy_browser import ECHO_SERVER, PYTHON, ProxyBrowser, proxy_url
from support.slurm_cluster import SlurmTestCluster
from support.slurm_job_ports import kill_server, relay_pids, run_helio

pytestmark = [needs_root, pytest.mark.timeout(400)]
JUPYTER = Path(sys.executable).parents[1] / "jupyter" / "bin" / "jupyter-lab"


@pytest.fixture(scope="module")
def server(slurm: SlurmTestCluster, two_unix_users: list[Person]) -> Iterator[RunningServer]:
    for person in two_unix_users:
        slurm.add_user(person.name)
    settings = f'server.engine = "slurm"\nsessions.jupyter_command = "{JUPYTER}"\n'
    server = RunningServer(settings, {**os.environ, **slurm.env})
    yield server
    server.remove()


def started(server: RunningServer, uid: int | None = None, **more: object) -> int:
    body = {"app": "custom", "command": echo_command(), "cpus": 1, **more}
    answer = server.ask("POST", "/sessions", body, uid=uid)
    assert answer.status == 201, answer.body
    number: int = answer.json["id"]
    comes_up(server, number, uid)
    return number


def comes_up(server: RunningServer, number: int, uid: int | None = None) -> None:
    wait_for(lambda: look(server, number, uid)["is_up"], "its server is up", lambda: look(server, number, uid))


def echo_command() -> list[str]:
    line = f'exec {PYTHON} -c "$CODE" ignored 127.0.0.1:$PORT'
    return ["sh", "-c", f"CODE=$1; {line}", "sh", ECHO_SERVER.read_text()]


def look(server: RunningServer, number: int, uid: int | None = None) -> Any:
    return server.ask("GET", f"/sessions/{number}", uid=uid).json


def end(server: RunningServer, number: int) -> None:
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(number)


def slurm_number(slurm: SlurmTestCluster, job_id: int, home: Path) -> str:
    """By the file in which its script notes its life."""
    receipt = home / "jobs" / str(job_id)
    newest = max(receipt.glob("*.receipt"), key=lambda path: path.stat().st_mtime)
    return newest.read_text().split()[1]


def test_a_session_opens_in_the_browser_of_its_owner_alone(
    server: RunningServer, ann: Person, bob: Person
) -> None:
    number = started(server, ann.uid)
    place, got = (
        ProxyBrowser(server).log_in(ann.uid).follow_redirects(f"{look(server, number, ann.uid)['url']}echo")
    )
    assert (got.status, got.json["target"], place.endswith("/echo")) == (200, "/echo", True)
    assert (got.echoed_header("authorization") or "").startswith("Bearer ")
    assert server.ask("GET", f"/sessions/{number}", uid=bob.uid).status == 403
    assert (
        ProxyBrowser(server).log_in(bob.uid).follow_redirects(f"{proxy_url(server)}/s/{number}/")[1].status == 403
    )
    end(server, number)


def test_it_outlives_the_server_and_so_does_the_way_in(server: RunningServer) -> None:
    number = started(server)
    visitor = ProxyBrowser(server).log_in()
    before = visitor.follow_redirects(f"{proxy_url(server)}/s/{number}/echo")[1].json["pid"]
    kill_server(server)
    server.start()
    comes_up(server, number)
    assert visitor.get(f"{proxy_url(server)}/s/{number}/echo").json["pid"] == before
    end(server, number)


def test_a_session_that_slurm_requeues_comes_up_on_another_node(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    number = started(server)
    visitor = ProxyBrowser(server).log_in()
    before = visitor.follow_redirects(f"{proxy_url(server)}/s/{number}/echo")[1].json["pid"]
    node = server.show(number)["node"]
    in_slurm = slurm_number(slurm, number, server.home)
    slurm.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=test")
    try:
        slurm.run("scontrol", "update", f"JobId={in_slurm}", "Requeue=1")
        slurm.run("scontrol", "requeue", in_slurm)
        wait_for(
            lambda: server.show(number)["attempt"] == 2, "it is the next attempt", lambda: server.show(number)
        )
        wait_for(lambda: server.show(number)["state"] == "running", "it runs again", lambda: server.show(number))
        comes_up(server, number)
        after = visitor.get(f"{proxy_url(server)}/s/{number}/echo")
        assert (after.status, after.json["pid"] != before, server.show(number)["node"] != node) == (
            200,
            True,
            True,
        )
        assert len(relay_pids(server, number)) == 1
    finally:
        slurm.resume_nodes()
    end(server, number)


def test_a_session_whose_server_fails_shows_its_last_words(server: RunningServer) -> None:
    body = {"app": "custom", "command": ["sh", "-c", "echo no such luck >&2; exit 3"], "cpus": 1}
    number = server.ask("POST", "/sessions", body).json["id"]
    assert server.finished(number)["state"] == "failed"
    assert "no such luck" in look(server, number)["log_tail"]


def test_more_time_is_told_to_slurm_and_outlives_the_server(
    server: RunningServer, slurm: SlurmTestCluster
) -> None:
    body = {"app": "custom", "command": ["sleep", "600"], "cpus": 1, "time_limit": 20, "grace_seconds": 1}
    number = server.ask("POST", "/sessions", body).json["id"]
    wait_for(lambda: server.show(number)["state"] == "running", "it runs")
    answer = server.ask("POST", f"/jobs/{number}/extend", {"time": "2h"})
    assert (answer.status, answer.json["time_limit_seconds"]) == (200, 7220)
    in_slurm = slurm_number(slurm, number, server.home)
    assert slurm.run("squeue", "-h", "-j", in_slurm, "-o", "%l").strip() == "2:02:00"
    brief = server.ask("POST", "/sessions", {"app": "custom", "command": ["sleep", "600"], "time_limit": 20}).json[
        "id"
    ]
    kill_server(server)
    server.start()
    server.ask("POST", "/jobs/wait", {"job_ids": [brief], "timeout_seconds": 50})
    assert server.finished(brief)["state"] == "timed_out"  # started later, with the same limit
    assert (server.show(number)["state"], server.show(number)["time_limit_seconds"]) == ("running", 7220)
    end(server, number)


def test_more_time_for_one_that_waits_in_slurm_counts_when_it_runs(
    server: RunningServer, slurm: SlurmTestCluster, request: pytest.FixtureRequest
) -> None:
    slurm.run("scontrol", "update", "PartitionName=main", "State=DOWN")
    request.addfinalizer(lambda: slurm.run("scontrol", "update", "PartitionName=main", "State=UP"))
    session = {"app": "custom", "command": ["sleep", "600"], "cpus": 1, "time_limit": "1h"}
    number = server.ask("POST", "/sessions", session).json["id"]
    wait_for(lambda: f":{number}.1" in slurm.run("squeue", "-h", "-t", "PD", "-o", "%k"), "it waits in Slurm")
    answer = server.ask("POST", f"/jobs/{number}/extend", {"time": "1h"})
    assert (answer.status, answer.json["time_limit_seconds"]) == (200, 7200), answer.body
    assert "2:02:00" in slurm.run("squeue", "-h", "-t", "PD", "-o", "%l")
    end(server, number)


@pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it")
def test_helio_notebook_brings_up_a_jupyterlab_whose_kernel_answers(server: RunningServer) -> None:
    ran = run_helio(server, "notebook", "--json", "--cpus", "1", "--gpus", "1")
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    key = server.ask("POST", f"/sessions/{told['id']}/key", {}).json["key"]
    said = [("Authorization", f"Bearer {key}"), ("Content-Type", "application/json")]
    made = ProxyBrowser(server).send(
        "POST", f"{told['url']}api/kernels", body=b'{"name": "python3"}', headers=said
    )
    assert made.status == 201, made.body
    address = f"{told['url']}api/kernels/{made.json['id']}/channels".replace("http", "ws", 1)
    with connect(address, additional_headers=dict(said[:1]), open_timeout=60) as channel:
        channel.send(json.dumps(_execute("import os; print(os.environ['SLURM_JOB_ID'], 6 * 7)")))
        while True:
            message = json.loads(channel.recv(90))
            if message["msg_type"] == "stream":
                break
    assert message["content"]["text"].split()[1] == "42"
    end(server, told["id"])


def _execute(code: str) -> dict[str, Any]:
    header = {"msg_id": "m1", "msg_type": "execute_request", "session": "s1", "username": "", "version": "5.3"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {
        "header": header,
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
        "buffers": [],
    }
