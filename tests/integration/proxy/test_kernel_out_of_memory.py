"""A cell that takes more memory than the session has: its kernel dies and starts again, the session goes on."""

import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from websockets.sync.client import connect

from integration.proxy.test_jupyter_session import JUPYTER, _execute, _printed, ask, look
from integration.running_server import RunningServer, wait_for
from integration.unix_users import needs_root

pytestmark = [
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    needs_root,
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(f'sessions.jupyter_command = "{JUPYTER}"\n')
    yield server
    server.remove()


def test_the_kernel_starts_again_and_the_session_goes_on(server: RunningServer) -> None:
    number = server.ask("POST", "/sessions", {"memory": "600M"}).json["id"]
    wait_for(lambda: look(server, number)["is_up"], "JupyterLab is up", seconds=120)
    session: dict[str, Any] = server.ask("POST", f"/sessions/{number}/key", {}).json
    kernel = ask(server, session, "POST", "api/kernels", {"name": "python3"})["id"]
    address = f"{session['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    with connect(address, additional_headers=headers, open_timeout=120) as channel:
        channel.send(json.dumps(_execute("x = bytearray(2**31)")))
        while json.loads(channel.recv(120))["content"].get("execution_state") not in (
            "autorestarting",
            "restarting",
        ):
            pass
    with connect(address, additional_headers=headers, open_timeout=120) as channel:
        assert _answer(channel, "print('x' in globals(), end='')") == "False"
    assert server.show(number)["state"] == "running"
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(number)


def _answer(channel: Any, code: str) -> str:
    """Asked again until there is one: what reaches a kernel that is just being replaced goes with it."""
    for _ in range(12):
        channel.send(json.dumps(_execute(code)))
        with suppress(TimeoutError):
            return _printed(channel, 10)
    raise AssertionError("the kernel does not answer")
