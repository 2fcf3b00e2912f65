"""Kernels of a session, and other people of the same machine: what a cell prints is nobody else's to read."""

import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from websockets.sync.client import connect

from heliostat.payloads.kernel_specs import has_r_kernel
from integration.proxy.test_jupyter_session import JUPYTER, _execute, _printed, ask, look
from integration.running_server import RunningServer, wait_for
from integration.unix_users import people
from support.proxy_browser import ProxyBrowser

EAVESDROPPER = Path(__file__).parents[2] / "support" / "eavesdropper.py"
SECRET = "for my eyes only"
_LISTENS = "0A"

pytestmark = [
    pytest.mark.skipif(not JUPYTER.exists(), reason="JupyterLab is not there: scripts/install --test brings it"),
    pytest.mark.skipif(os.geteuid() != 0, reason="makes a Unix user, so it needs root"),
    pytest.mark.timeout(400),
]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(f'sessions.jupyter_command = "{JUPYTER}"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def session(server: RunningServer) -> dict[str, Any]:
    number = server.ask("POST", "/sessions", {}).json["id"]
    wait_for(lambda: look(server, number)["is_up"], "JupyterLab is up", seconds=120)
    made: dict[str, Any] = server.ask("POST", f"/sessions/{number}/key", {}).json
    return made | {"id": number}


@pytest.mark.parametrize(
    ("kernel", "code"), [("python3", f"print({SECRET!r}, end='')"), ("ir", f"cat({json.dumps(SECRET)})")]
)
def test_nobody_else_hears_what_a_cell_prints(
    server: RunningServer, session: dict[str, Any], kernel: str, code: str
) -> None:
    if kernel == "ir" and not has_r_kernel():
        pytest.skip("there is no R with IRkernel here: apt-get install r-cran-irkernel")
    number = ask(server, session, "POST", "api/kernels", {"name": kernel})["id"]
    address = f"{session['url']}api/kernels/{number}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    with connect(address, additional_headers=headers, open_timeout=120) as channel:
        channel.send(json.dumps(_execute(code)))
        assert _printed(channel, 150).strip() == SECRET
        with people("eve") as [eve], _listening(eve.name, _ports_of(session["id"])) as ear:
            deadline = time.monotonic() + 3
            while time.monotonic() < deadline:
                channel.send(json.dumps(_execute(code)))
                assert _printed(channel, 150).strip() == SECRET
            heard, _ = ear.communicate(timeout=60)
    assert SECRET not in heard
    ask(server, session, "DELETE", f"api/kernels/{number}")


def test_a_kernel_starts_again_where_it_was(server: RunningServer, session: dict[str, Any]) -> None:
    kernel = ask(server, session, "POST", "api/kernels", {"name": "python3"})["id"]
    address = f"{session['url']}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    headers = {"Authorization": f"Bearer {session['key']}"}
    for _ in range(2):
        with connect(address, additional_headers=headers, open_timeout=120) as channel:
            channel.send(json.dumps(_execute("print(globals().setdefault('x', 1), end=''); x = 2")))
            assert _printed(channel) == "1"
        ask(server, session, "POST", f"api/kernels/{kernel}/restart", {})
    ask(server, session, "DELETE", f"api/kernels/{kernel}")


def test_the_debugger_which_opens_a_port_to_everybody_is_off(
    server: RunningServer, session: dict[str, Any]
) -> None:
    said = [("Authorization", f"Bearer {session['key']}")]
    page = ProxyBrowser(server).get(f"{session['url']}lab", headers=said).body.decode()
    settings = json.loads(
        page.partition('id="jupyter-config-data"')[2].partition(">")[2].partition("</script>")[0]
    )
    assert "@jupyterlab/debugger-extension" in settings["disabledExtensions"]


def _listening(user: str, ports: list[int]) -> "subprocess.Popen[str]":
    """As this user, at these ports, once it listens."""
    packages = next(JUPYTER.parents[1].glob("lib/python3*/site-packages"))
    words = ["/usr/bin/python3", "-c", EAVESDROPPER.read_text(), "6", *map(str, ports)]
    command = ["/usr/sbin/runuser", "-u", user, "--", *words]
    process = subprocess.Popen(
        command, env={"PYTHONPATH": str(packages)}, cwd="/", stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    return process


def _ports_of(job: int) -> list[int]:
    """Those on which processes of the job listen, the server of the session among them."""
    mine = f"HELIOSTAT_JOB_ID={job}".encode()
    inodes: set[str] = set()
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if mine in (place / "environ").read_bytes().split(b"\0"):
                inodes |= {os.readlink(one) for one in (place / "fd").iterdir()}
        except OSError:
            continue
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].split(":")[1], 16) for row in rows if row[3] == _LISTENS and f"socket:[{row[9]}]" in inodes]
