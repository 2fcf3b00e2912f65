"""Sessions through the queue and the proxy: a web server of one's own."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.proxy_browser import ECHO_SERVER, PYTHON, ProxyBrowser, proxy_url


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """One that brings no JupyterLab along."""
    server = RunningServer(
        'server.simulate_gpus = "4xA100"\nserver.node_name = "here"\nsessions.jupyter_requirements = []\n'
    )
    yield server
    server.remove()


@pytest.fixture
def session(server: RunningServer) -> Iterator[int]:
    yield from started(server)


def started(server: RunningServer, uid: int | None = None, **more: object) -> Iterator[int]:
    body = {"app": "custom", "command": echo_command(), **more}
    answer = server.ask("POST", "/sessions", body, uid=uid)
    assert answer.status == 201, answer.body
    number: int = answer.json["id"]
    wait_for(lambda: look(server, number, uid)["is_up"], "its server is up", lambda: look(server, number, uid))
    yield number
    server.ask("POST", f"/jobs/{number}/cancel?force=true", uid=uid)
    server.finished(number, uid)


def echo_command() -> list[str]:
    line = f'exec {PYTHON} -c "$CODE" ignored 127.0.0.1:$PORT'
    return ["sh", "-c", f"CODE=$1; {line}", "sh", ECHO_SERVER.read_text()]


def look(server: RunningServer, session: int, uid: int | None = None) -> dict[str, object]:
    state: dict[str, object] = server.ask("GET", f"/sessions/{session}", uid=uid).json
    return state


def test_a_session_is_a_job_with_an_address_and_a_secret_nobody_is_shown(
    server: RunningServer, session: int
) -> None:
    state = look(server, session)
    assert (state["kind"], state["state"], state["app"]) == ("session", "running", "custom")
    assert state["url"] == f"{proxy_url(server)}/s/{session}/"
    visitor = ProxyBrowser(server).log_in()
    place, got = visitor.follow_redirects(f"{state['url']}echo")
    secret = (got.echoed_header("authorization") or "").removeprefix("Bearer ")
    assert (got.json["target"], len(secret)) == ("/echo", 43)
    shown = server.ask("GET", f"/jobs/{session}").body.decode()
    pages = [
        visitor.get(f"{server.url}{path}").body.decode() for path in (f"/jobs/{session}", f"/sessions/{session}")
    ]
    for text in (shown, *pages, server.log, got.all_headers("set-cookie").__repr__()):
        assert secret not in text
    assert secret.encode() not in b"".join(path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert place.endswith("/echo")


def test_it_outlives_the_server_and_so_does_the_way_in(server: RunningServer, session: int) -> None:
    visitor = ProxyBrowser(server).log_in()
    visitor.follow_redirects(f"{proxy_url(server)}/s/{session}/")
    before = visitor.get(f"{proxy_url(server)}/s/{session}/echo").json["pid"]
    os.kill(server.pid, 9)
    server.process.wait(120)
    server.start()
    wait_for(lambda: look(server, session)["is_up"], "it is found again")
    assert visitor.get(f"{proxy_url(server)}/s/{session}/echo").json["pid"] == before


def test_the_page_leads_on_once_it_is_up(server: RunningServer, session: int) -> None:
    visitor = ProxyBrowser(server).log_in()
    page = visitor.get(f"{server.url}/sessions/{session}").body.decode()
    assert f'href="{proxy_url(server)}/s/{session}/" data-goto' in page
    place, _ = visitor.follow_redirects(f"{server.url}/sessions/{session}?go=true")
    assert place == f"{proxy_url(server)}/s/{session}/"
    assert f"/sessions/{session}" in visitor.get(f"{server.url}/sessions").body.decode()


def test_a_session_that_waits_shows_its_page_and_one_that_fails_its_last_words(server: RunningServer) -> None:
    visitor = ProxyBrowser(server).log_in()
    body = {"app": "custom", "command": ["sh", "-c", "echo no such luck >&2; exit 3"], "held": True}
    number = server.ask("POST", "/sessions", body).json["id"]
    place, got = visitor.follow_redirects(f"{proxy_url(server)}/s/{number}/")
    assert (place, "The session is held" in got.body.decode()) == (f"{server.url}/sessions/{number}", True)
    server.ask("POST", f"/jobs/{number}/release")
    server.finished(number)
    assert "no such luck" in str(look(server, number)["log_tail"])
    assert "no such luck" in visitor.get(f"{server.url}/sessions/{number}").body.decode()


def test_without_jupyter_it_says_what_to_do(server: RunningServer) -> None:
    number = server.ask("POST", "/sessions", {"env": {"PATH": "/usr/bin:/bin"}}).json["id"]
    assert server.finished(number)["state"] == "failed"
    assert "Add a line jupyterlab to your requi" in str(look(server, number)["log_tail"])


def test_the_same_request_again_is_the_same_session(server: RunningServer) -> None:
    body = {"app": "custom", "command": ["true"], "held": True}
    first, second = (server.ask("POST", "/sessions", body, headers={"Idempotency-Key": "k1"}) for _ in range(2))
    assert first.json["id"] == second.json["id"]
    server.ask("POST", f"/jobs/{first.json['id']}/cancel")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"app": "emacs"}, "app"),
        ({"app": "custom"}, "command"),
        ({"script": "#!/bin/sh\ntrue"}, "app"),
        ({"array": "0-3"}, "app"),
        ({"tasks": 2}, "app"),
        ({"gpus": "many"}, "gpus"),
        ({"time_limit": "forever"}, "time_limit"),
    ],
)
def test_what_makes_no_sense_is_refused(server: RunningServer, body: dict[str, object], field: str) -> None:
    answer = server.ask("POST", "/sessions", body)
    assert (answer.status, field in answer.error["fields"]) == (422, True), answer.body


def test_the_commands_start_list_and_show(server: RunningServer) -> None:
    ran = helio(server, "session", "start", "--json", "--cpus", "1", *echo_command())
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout)
    assert told["is_up"] is True
    number = str(told["id"])
    assert told["url"] in helio(server, "session", "list").stdout
    assert f"Session {number} (custom) is up" in helio(server, "session", "show", number).stdout
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(int(number))
    assert number not in [str(one["id"]) for one in json.loads(helio(server, "session", "list", "--json").stdout)]
    ran = helio(server, "session", "start", "--cpus", "1", *echo_command())
    (link,) = re.findall(r"^  (http://\S+/login\S+)$", ran.stderr, re.MULTILINE)
    other = ran.stdout.strip().rstrip("/").rpartition("/")[2]
    assert f"%2Fsessions%2F{other}" in link
    server.ask("POST", f"/jobs/{other}/cancel?force=true")
    failed = helio(server, "notebook", "--env", "PATH=/usr/bin:/bin")
    assert (failed.returncode, "Add a line jupyterlab to your requi" in failed.stderr) == (1, True)


@needs_root
def test_a_session_is_its_owners_alone(server: RunningServer, ann: Person, bob: Person) -> None:
    for number in started(server, ann.uid, cpus=1):
        secret_paths = [("GET", f"/sessions/{number}"), ("POST", f"/sessions/{number}/key")]
        for method, path in secret_paths:
            assert server.ask(method, path, {}, uid=bob.uid).status == 403
        assert server.ask("GET", "/sessions", uid=bob.uid).json["items"] == []
        visitor = ProxyBrowser(server).log_in(bob.uid)
        assert visitor.follow_redirects(f"{proxy_url(server)}/s/{number}/")[1].status == 403
        assert visitor.get(f"{server.url}/sessions/{number}").status == 403
        told = server.home / "jobs" / str(number) / "checkpoints" / ".session-1"
        told.write_text("22\n")
        assert look(server, number, ann.uid)["is_up"] is False  # nobody is led to what is not of the job
        told.unlink()
        told.symlink_to("/etc/hostname")
        assert look(server, number, ann.uid)["is_up"] is False


def helio(server: RunningServer, *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=90, check=False, cwd="/")
