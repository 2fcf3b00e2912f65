"""A real JupyterLab through the proxy: a kernel over WebSocket from Python, and large uploads that stream."""

import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from heliostat.payloads.kernel_specs import has_r_kernel
from integration.running_server import RunningServer, wait_for
from support.proxy_browser import ProxyBrowser, proxy_url

JUPYTER = Path(sys.executable).parents[1] / "jupyter" / "bin" / "jupyter-lab"
LARGE_MIB = 300

pytestmark = [
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(f'sessions.jupyter_command = "{JUPYTER}"\nserver.simulate_gpus = "2xA100"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def session(server: RunningServer) -> dict[str, Any]:
    venv = server.folder / "person" / "venvs" / "mine"  # without ipykernel
    subprocess.run([JUPYTER.with_name("python"), "-m", "venv", "--without-pip", venv], check=True)
    body = {"gpus": 1, "env": {"HOME": str(server.folder / "person")}}
    number = server.ask("POST", "/sessions", body).json["id"]
    is_settled = lambda: look(server, number)["is_up"] or server.show(number)["ended_at"]  # noqa: E731
    wait_for(is_settled, "JupyterLab is up", seconds=120)
    assert look(server, number)["is_up"], look(server, number)
    made: dict[str, Any] = server.ask("POST", f"/sessions/{number}/key", {}).json
    return made | {"id": number}


def look(server: RunningServer, number: int) -> Any:
    return server.ask("GET", f"/sessions/{number}").json


def ask(server: RunningServer, session: dict[str, Any], method: str, path: str, body: Any = None) -> Any:
    said = [("Authorization", f"Bearer {session['key']}"), ("Content-Type", "application/json")]
    data = json.dumps(body).encode() if body is not None else None
    got = ProxyBrowser(server).send(method, f"{session['url']}{path}", body=data, headers=said)
    assert got.status < 400, (got.status, got.body[:500])
    return got.json if got.body else None


def test_a_kernel_answers_over_a_websocket(server: RunningServer, session: dict[str, Any]) -> None:
    kernel = ask(server, session, "POST", "api/kernels", {"name": "python3"})["id"]
    address = f"{session['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    with connect(address, additional_headers=headers, open_timeout=60) as channel:
        code = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'], os.environ['HELIOSTAT_JOB_ID'])"
        channel.send(json.dumps(_execute(code)))
        printed = _printed(channel)
    device, number = printed.split()
    assert ([device], number) == (server.show(session["id"])["devices"], str(session["id"]))
    ask(server, session, "DELETE", f"api/kernels/{kernel}")


def test_an_environment_of_its_user_is_a_kernel(server: RunningServer, session: dict[str, Any]) -> None:
    specs = ask(server, session, "GET", "api/kernelspecs")
    assert (specs["default"], "venv-mine" in specs["kernelspecs"]) == ("python3", True)
    kernel = ask(server, session, "POST", "api/kernels", {"name": "venv-mine"})["id"]
    address = f"{session['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    with connect(address, additional_headers=headers, open_timeout=60) as channel:
        channel.send(json.dumps(_execute("import sys; print(sys.prefix)")))
        assert _printed(channel).strip() == str(server.folder / "person" / "venvs" / "mine")
    ask(server, session, "DELETE", f"api/kernels/{kernel}")


def test_r_is_a_kernel(server: RunningServer, session: dict[str, Any]) -> None:
    if not has_r_kernel():
        pytest.skip("there is no R with IRkernel here: apt-get install r-cran-irkernel")
    assert ask(server, session, "GET", "api/kernelspecs")["kernelspecs"]["ir"]["spec"]["display_name"] == "R"
    kernel = ask(server, session, "POST", "api/kernels", {"name": "ir"})["id"]
    address = f"{session['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    with connect(address, additional_headers=headers, open_timeout=120) as channel:
        channel.send(json.dumps(_execute("cat(sum(1:4), R.version$language)")))
        assert _printed(channel, 150) == "10 R"
    ask(server, session, "DELETE", f"api/kernels/{kernel}")


def test_a_browser_needs_no_token_and_never_sees_it(server: RunningServer, session: dict[str, Any]) -> None:
    visitor = ProxyBrowser(server).log_in()
    place, got = visitor.follow_redirects(session["url"])
    assert (place, got.status) == (f"{session['url']}lab", 200)
    token = visitor.get(f"{session['url']}api/status")
    assert token.status == 200
    assert ProxyBrowser(server).get(f"{session['url']}api/status").status == 401


def test_a_large_upload_streams_and_the_server_stays_small(server: RunningServer, session: dict[str, Any]) -> None:
    """A file in one request, with names that hold what must stay encoded."""
    before = _memory_mib(server.pid)
    said = [("Authorization", f"Bearer {session['key']}"), ("Content-Type", "application/json")]
    head = b'{"type": "file", "format": "text", "content": "'
    parts = [head, *([b"x" * 2**20] * LARGE_MIB), b'"}']
    url = f"{session['url']}api/contents/large%20file%23.txt"
    got = ProxyBrowser(server).send("PUT", url, body=iter(parts), headers=said)
    assert got.status == 201, got.body[:500]
    found = ask(server, session, "GET", "api/contents/large%20file%23.txt?content=0")
    assert (found["name"], found["size"]) == ("large file#.txt", LARGE_MIB * 2**20)
    assert _memory_mib(server.pid) - before < 100
    assert proxy_url(server) in session["url"]


def _execute(code: str) -> dict[str, Any]:
    header = {
        "msg_id": uuid.uuid4().hex,
        "username": "",
        "session": uuid.uuid4().hex,
        "msg_type": "execute_request",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    return {
        "header": {**header, "version": "5.3", "date": ""},
        "parent_header": {},
        "metadata": {},
        "content": content,
        "channel": "shell",
    }


def _printed(channel: Any, seconds: float = 60) -> str:
    while True:
        message = json.loads(channel.recv(seconds))
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            return str(message["content"]["text"])


def _memory_mib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) // 1024
