"""A session is shared by its owner with one person, and with nobody else; and taken back."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.proxy_browser import ECHO_SERVER, PYTHON, ProxyBrowser

pytestmark = needs_root
PATIENCE_SECONDS = 90.0


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """Each session has a host name of its own."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = RunningServer(f'server.proxy_port = {port}\nserver.proxy_url = "http://*.lab.test:{port}"\n')
    yield server
    server.remove()


@pytest.fixture(scope="module")
def session(server: RunningServer, two_unix_users: list[Person]) -> Iterator[int]:
    ann, bob = two_unix_users
    server.ask("GET", "/me", uid=bob.uid)  # an account comes with the first contact
    yield from started(server, ann)


def started(server: RunningServer, person: Person) -> Iterator[int]:
    command = [
        "sh",
        "-c",
        f'CODE=$1; exec {PYTHON} -c "$CODE" ignored 127.0.0.1:$PORT',
        "sh",
        ECHO_SERVER.read_text(),
    ]
    body = {"app": "custom", "command": command, "cpus": 1, "memory": "256M"}
    number: int = server.ask("POST", "/sessions", body, uid=person.uid).json["id"]
    is_up = lambda: server.ask("GET", f"/sessions/{number}", uid=person.uid).json["is_up"]  # noqa: E731
    wait_for(is_up, "its server is up", seconds=PATIENCE_SECONDS)
    yield number
    server.ask("POST", f"/jobs/{number}/cancel?force=true")


def shares(server: RunningServer, session: int, guest: str, person: Person | None, method: str = "PUT") -> Any:
    return server.ask(method, f"/sessions/{session}/shares/{guest}", {}, uid=person.uid if person else None)


def key_of(server: RunningServer, session: int, person: Person) -> str:
    answer = server.ask("POST", f"/sessions/{session}/key", {}, uid=person.uid)
    assert answer.status == 200, answer.body
    key: str = answer.json["key"]
    return key


def through(server: RunningServer, session: int, key: str, host: int | None = None) -> int:
    """The status of a request of a program with this key, under the host name of that session."""
    [port] = re.findall(r"server\.proxy_port = (\d+)", (server.home / "cluster.toml").read_text())
    said = [("Host", f"{host or session}.lab.test:{port}"), ("Authorization", f"Bearer {key}")]
    return ProxyBrowser(server).get(f"http://127.0.0.1:{port}/s/{session}/echo", headers=said).status


def enter(server: RunningServer, session: int, person: Person) -> int:
    """Whether the control plane lets a browser of this person over."""
    return ProxyBrowser(server).log_in(person.uid).get(f"{server.url}/enter/{session}?nonce={'0' * 64}").status


def test_only_its_owner_shares_it_and_only_with_people_there_are(
    server: RunningServer, session: int, ann: Person, bob: Person
) -> None:
    assert shares(server, session, bob.name, bob).status == 403
    assert shares(server, session, bob.name, None).status == 403  # nor does an admin
    assert shares(server, session, "nobody-such", ann).status == 404
    assert shares(server, session, ann.name, ann).status == 422
    assert shares(server, 99_999, bob.name, ann).status == 404
    assert server.ask("GET", f"/sessions/{session}", uid=bob.uid).status == 403
    assert enter(server, session, bob) == 403


def test_a_guest_comes_in_and_may_do_nothing_else_and_is_shown_out_again(
    server: RunningServer, session: int, ann: Person, bob: Person
) -> None:
    assert shares(server, session, bob.name, ann).json["shared_with"] == [bob.name]
    key = key_of(server, session, bob)
    assert through(server, session, key) == 200
    assert through(server, session, key, host=session + 1) == 404
    assert enter(server, session, bob) == 303
    shown = server.ask("GET", f"/sessions/{session}", uid=bob.uid).json
    assert (shown["user"], shown["shared_with"], shown["log_tail"]) == (ann.name, [], None)
    assert [one["id"] for one in server.ask("GET", "/sessions", uid=bob.uid).json["items"]] == [session]
    port = int((server.home / "jobs" / str(session) / "checkpoints" / ".session-1").read_text())
    for method, path, body in (
        ("POST", f"/jobs/{session}/cancel", {}),
        ("POST", f"/jobs/{session}/extend", {"time": "1h"}),
        ("GET", f"/jobs/{session}/logs?stream=stdout", None),
        ("GET", f"/jobs/{session}/ports/{port}", None),
        ("PUT", f"/sessions/{session}/shares/root", {}),
        ("DELETE", f"/sessions/{session}/shares/{bob.name}", None),
    ):
        assert server.ask(method, path, body, uid=bob.uid).status == 403, path
    os.kill(server.pid, 9)
    server.process.wait(120)
    server.start()
    wait_for(lambda: through(server, session, key) == 200, "a restart changes nothing", seconds=PATIENCE_SECONDS)
    assert shares(server, session, bob.name, ann, "DELETE").json["shared_with"] == []
    wait_for(lambda: through(server, session, key) == 403, "the guest is shown out", seconds=PATIENCE_SECONDS)
    assert enter(server, session, bob) == 403
    assert server.ask("GET", "/sessions", uid=bob.uid).json["items"] == []
    assert through(server, session, key_of(server, session, ann)) == 200


def test_the_page_shares_it_too(server: RunningServer, session: int, ann: Person, bob: Person) -> None:
    visitor = ProxyBrowser(server).log_in(ann.uid)
    page = visitor.get(f"{server.url}/sessions/{session}").body.decode()
    assert "Share session" in page
    [csrf] = set(re.findall(r'name="csrf" value="([^"]+)"', page))
    said = [("Content-Type", "application/x-www-form-urlencoded"), ("Origin", server.url)]
    body = f"csrf={csrf}&user={bob.name}".encode()
    assert visitor.send("POST", f"{server.url}/sessions/{session}/share", body=body, headers=said).status == 303
    guest = ProxyBrowser(server).log_in(bob.uid)
    assert f"owner {ann.name}" in guest.get(f"{server.url}/sessions").body.decode()
    theirs = guest.get(f"{server.url}/sessions/{session}").body.decode()
    assert ("Shared by" in theirs, "Share session" in theirs, "/extend" in theirs) == (True, False, False)


def test_without_host_names_nothing_is_shared() -> None:
    server = RunningServer()
    try:
        body = {"app": "custom", "command": ["sleep", "60"], "held": True}
        number = server.ask("POST", "/sessions", body).json["id"]
        answer = server.ask("PUT", f"/sessions/{number}/shares/somebody", {})
        assert (answer.status, answer.error["code"]) == (409, "no_own_hosts")
        assert "proxy_url" in answer.error["hint"]
        argv = [sys.executable, "-m", "heliostat.cli.main", "session", "share", str(number), "somebody"]
        environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
        ran = subprocess.run(
            argv, env=environment, capture_output=True, text=True, timeout=90, check=False, cwd="/"
        )
        assert (ran.returncode != 0, "its own host name" in ran.stderr) == (True, True)
        done = subprocess.run(
            [*argv, "--revoke", "--json"], env=environment, capture_output=True, timeout=90, check=False, cwd="/"
        )
        assert b'"shared_with": []' in done.stdout
    finally:
        server.remove()
