"""A real JupyterLab that nobody uses is warned and ended; one whose cell runs is not."""

import json
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from integration.running_server import RunningServer, wait_for
from support.proxy_browser import ProxyBrowser

JUPYTER = Path(sys.executable).parents[1] / "jupyter" / "bin" / "jupyter-lab"
IDLE_SECONDS = 24
PATIENCE_SECONDS = 150.0

pytestmark = [
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    settings = (
        f'sessions.jupyter_command = "{JUPYTER}"\n'
        f'sessions.idle_after = "{IDLE_SECONDS}s"\nmonitoring.sample_seconds = 0\n'
    )
    server = RunningServer(settings)
    yield server
    server.remove()


def start(server: RunningServer, **more: object) -> int:
    number: int = server.ask("POST", "/sessions", {"cpus": 1, "memory": "1G", **more}).json["id"]
    wait_for(lambda: look(server, number)["is_up"], "it is up", seconds=PATIENCE_SECONDS)
    return number


def look(server: RunningServer, number: int) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("GET", f"/sessions/{number}").json
    return found


def events(server: RunningServer, number: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = server.ask("GET", f"/events?job_id={number}&limit=500").json["items"]
    return found


def warnings(server: RunningServer, number: int) -> list[str]:
    return [one["detail"] for one in events(server, number) if one["kind"] == "ends_soon"]


def run_for_ever(server: RunningServer, number: int) -> None:
    """Start a cell that goes on."""
    made = server.ask("POST", f"/sessions/{number}/key", {}).json
    said = [("Authorization", f"Bearer {made['key']}"), ("Content-Type", "application/json")]
    body = json.dumps({"name": "python3"}).encode()
    kernel = ProxyBrowser(server).send("POST", f"{made['url']}api/kernels", body=body, headers=said).json["id"]
    address = f"{made['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    header = {
        "msg_id": uuid.uuid4().hex,
        "username": "",
        "session": uuid.uuid4().hex,
        "date": "",
        "version": "5.3",
    }
    content = {"code": "import time; print('works', flush=True); time.sleep(9999)", "silent": False}
    with connect(address, additional_headers={said[0][0]: said[0][1]}, open_timeout=60) as channel:
        message = {"header": {**header, "msg_type": "execute_request"}, "parent_header": {}, "metadata": {}}
        channel.send(json.dumps({**message, "content": content, "channel": "shell"}))
        while json.loads(channel.recv(60))["msg_type"] != "stream":
            pass


def test_a_forgotten_session_ends_after_a_warning_and_one_that_works_does_not(server: RunningServer) -> None:
    busy = start(server)
    run_for_ever(server, busy)
    forgotten = start(server)
    wait_for(lambda: warnings(server, forgotten), "it is warned", seconds=PATIENCE_SECONDS)
    os.kill(server.pid, 9)
    server.process.wait(120)
    server.start()
    wait_for(lambda: server.show(forgotten)["ended_at"], "it is ended", seconds=PATIENCE_SECONDS)
    ended = server.show(forgotten)
    assert (ended["state"], "it was idle for 24s" in ended["reason"]) == ("cancelled", True)
    assert len(warnings(server, forgotten)) == 1  # once, also over a restart
    assert [one["kind"] for one in events(server, forgotten)].count("cancel_requested") == 1
    assert (server.show(busy)["state"], look(server, busy)["warning"]) == ("running", None)
    server.ask("POST", f"/jobs/{busy}/cancel?force=true")
    server.finished(busy)


def test_the_end_of_its_time_is_told_once_and_not_after_it_has_more(server: RunningServer) -> None:
    body = {"app": "custom", "command": ["sleep", "600"], "time_limit": 48, "cpus": 1, "memory": "1G"}
    kept: int = server.ask("POST", "/sessions", body).json["id"]
    told = wait_for(lambda: look(server, kept)["warning"], "the end is told", seconds=PATIENCE_SECONDS)
    assert told.startswith("The session reaches its time limit at")
    assert warnings(server, kept) == [told]
    assert server.ask("POST", f"/jobs/{kept}/extend", {"time": "1h"}).status == 200
    assert look(server, kept)["warning"] is None
    server.ask("POST", f"/jobs/{kept}/cancel?force=true")
    server.finished(kept)
