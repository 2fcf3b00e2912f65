"""Services: replicas behind one address, under load while they die, are updated, and while the server dies."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.proxy_browser import ECHO_SERVER, PYTHON, ProxyBrowser, proxy_url

PATIENCE_SECONDS = 100.0  # several servers start one after the other
MANY_CPUS = Path(__file__).parents[2] / "support" / "many_cpus"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer(environment={**os.environ, "PYTHONPATH": str(MANY_CPUS)})
    yield server
    for one in server.ask("GET", "/services").json["items"]:  # else what is cancelled is started again
        server.ask("POST", f"/services/{one['name']}/stop")
    server.remove()


def body(name: str, **more: object) -> dict[str, object]:
    command = [PYTHON, "-c", ECHO_SERVER.read_text(), "ignored", "127.0.0.1:{port}"]
    small: dict[str, object] = {"cpus": 1, "memory": "64M", "health": {"path": "/up", "interval": 1}}
    return {"name": name, "command": command, **small, **more}


@contextmanager
def running(server: RunningServer, name: str, uid: int | None = None, **more: object) -> Iterator[str]:
    """A service all of whose replicas are healthy, and its address."""
    answer = server.ask("POST", "/services", body(name, **more), uid=uid)
    assert answer.status == 201, answer.body
    until_whole(server, name, uid)
    yield answer.json["url"]
    server.ask("POST", f"/services/{name}/stop", uid=uid)
    wait_for(lambda: live(server, name, uid) == [], "its replicas are gone", lambda: look(server, name, uid))
    assert server.ask("DELETE", f"/services/{name}", uid=uid).status == 204


def look(server: RunningServer, name: str, uid: int | None = None) -> Any:
    return server.ask("GET", f"/services/{name}", uid=uid).json


def live(server: RunningServer, name: str, uid: int | None = None) -> list[Any]:
    return [one for one in look(server, name, uid)["replica_jobs"] if one["state"] != "over"]


def until_whole(server: RunningServer, name: str, uid: int | None = None) -> None:
    """As many as wanted, all healthy, none of an earlier generation or on its way out."""

    def is_whole() -> bool:
        one, there = look(server, name, uid), live(server, name, uid)
        states = [replica["state"] for replica in there]
        return bool(one["is_updated"]) and states == ["healthy"] * int(one["replicas"])

    wait_for(is_whole, "all replicas are healthy", lambda: look(server, name, uid), PATIENCE_SECONDS)


class Load:
    """Several programs that ask one thing after the other, each on a connection it keeps."""

    def __init__(self, server: RunningServer, name: str, askers: int = 4) -> None:
        told = server.ask("POST", f"/services/{name}/key", {}).json
        self._address, self._headers = urlsplit(told["url"]), {"Authorization": f"Bearer {told['key']}"}
        self.answered: Counter[int] = Counter()  # by the process that answered
        self.failed: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on) for _ in range(askers)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        self.until_more(20)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def until_more(self, count: int) -> None:
        wanted = self.answered.total() + count
        wait_for(lambda: self.answered.total() >= wanted or self.failed, f"{count} more answers")

    def _ask_on(self) -> None:
        connection = http.client.HTTPConnection(self._address.hostname or "", self._address.port or 0, timeout=60)
        while not self._over.is_set():
            try:
                connection.request("GET", self._address.path + "echo", headers=self._headers)
                response = connection.getresponse()
                text = response.read()
                if response.status != 200:
                    self.failed.append(f"{response.status} {text[:300]!r}")
                else:
                    self.answered[json.loads(text)["pid"]] += 1
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(repr(error))
                connection.close()
        connection.close()


def test_no_request_fails_while_a_replica_is_killed(server: RunningServer) -> None:
    with running(server, "killed", replicas=3), Load(server, "killed") as load:
        wait_for(lambda: len(load.answered) == 3, "each replica answers", lambda: load.answered)
        before = {one["job_id"] for one in live(server, "killed")}
        victim = next(iter(load.answered))
        os.kill(victim, 9)
        load.until_more(50)
        wait_for(lambda: look(server, "killed")["failures"] >= 1, "that is noticed")
        until_whole(server, "killed")
        wait_for(lambda: len(load.answered) >= 4, "the new one answers too", lambda: load.answered)
        after = {one["job_id"] for one in live(server, "killed")}
        assert len(after) == 3
        assert len(after & before) <= 2
    assert load.failed == []


def test_no_request_fails_during_an_update_and_there_are_never_too_many(server: RunningServer) -> None:
    with running(server, "updated", replicas=2), Load(server, "updated") as load:
        old = {one["job_id"] for one in live(server, "updated")}
        changed = body("updated", replicas=2, env={"VERSION": "2"})
        assert server.ask("PUT", "/services/updated", changed).json["generation"] == 2
        seen = []

        def is_done() -> bool:
            there = live(server, "updated")
            seen.append(sum(one["state"] != "draining" for one in there))
            new = [one for one in there if one["job_id"] not in old and one["state"] == "healthy"]
            return len(new) == len(there) == 2

        wait_for(is_done, "all replicas are new", lambda: look(server, "updated"), PATIENCE_SECONDS)
        load.until_more(20)
        assert max(seen) <= 3
    assert load.failed == []


def test_replicas_and_their_address_outlive_the_server(server: RunningServer) -> None:
    with running(server, "lasting", replicas=2) as url:
        key = server.ask("POST", "/services/lasting/key", {}).json["key"]
        before = {one["job_id"] for one in live(server, "lasting")}
        bearer = [("Authorization", f"Bearer {key}")]
        pids = {ProxyBrowser(server).get(f"{url}echo", headers=bearer).json["pid"] for _ in range(4)}
        os.kill(server.pid, 9)
        server.process.wait(120)
        server.start()
        there = look(server, "lasting")["url"]
        assert ProxyBrowser(server).get(f"{there}echo", headers=bearer).json["pid"] in pids
        until_whole(server, "lasting")
        assert {one["job_id"] for one in live(server, "lasting")} == before


def test_one_that_always_fails_is_tried_again_ever_later_and_says_so(server: RunningServer) -> None:
    server.ask("POST", "/services", body("broken", command=["sh", "-c", "echo no luck >&2; exit 3"]))
    wait_for(lambda: look(server, "broken")["failures"] >= 3, "three failures", lambda: look(server, "broken"))
    one = look(server, "broken")
    assert f"Crash loop: the service failed {one['failures']} times in a row" in one["summary"]
    assert "3" in one["problem"]
    assert len(one["replica_jobs"]) <= one["failures"] + 1
    answer = server.ask("POST", "/services/broken/key", {}).json
    got = ProxyBrowser(server).get(answer["url"], headers=[("Authorization", f"Bearer {answer['key']}")])
    assert (got.status, got.json["error"]["code"]) == (502, "service_down")
    changed = server.ask("PUT", "/services/broken", body("broken")).json
    assert changed["failures"] == 0
    until_whole(server, "broken")
    server.ask("POST", "/services/broken/stop")


def test_one_that_answers_wrongly_is_replaced(server: RunningServer) -> None:
    """Healthy at first, as long as a file is there."""
    flag = server.folder / "flag"
    flag.write_text("up")
    code = (
        "import http.server, os, sys\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_GET(self):\n"
        "        self.send_response(200 if os.path.exists(sys.argv[2]) else 500)\n"
        "        self.send_header('Content-Length', '0')\n"
        "        self.end_headers()\n"
        "http.server.HTTPServer(('127.0.0.1', int(sys.argv[1])), Handler).serve_forever()\n"
    )
    health = {"path": "/", "interval": 1, "threshold": 2}
    words = [PYTHON, "-c", code, "{port}", str(flag)]
    with running(server, "sick", command=words, health=health):
        (first,) = [one["job_id"] for one in live(server, "sick")]
        flag.unlink()
        problem = "2 health checks in a row failed: GET / returns 500"
        wait_for(lambda: problem in str(look(server, "sick")["problem"]), "it is found out")
        flag.write_text("up")
        until_whole(server, "sick")
        assert [one["job_id"] for one in live(server, "sick")] != [first]
        assert server.finished(first)["state"] == "cancelled"


def test_it_scales_up_and_down_and_restarts(server: RunningServer) -> None:
    with running(server, "scaled"):
        server.ask("PATCH", "/services/scaled", {"replicas": 3})
        until_whole(server, "scaled")
        three = {one["job_id"] for one in live(server, "scaled")}
        server.ask("PATCH", "/services/scaled", {"replicas": 1})
        until_whole(server, "scaled")
        one = {one["job_id"] for one in live(server, "scaled")}
        assert one < three
        server.ask("POST", "/services/scaled/restart")
        until_whole(server, "scaled")
        assert {each["job_id"] for each in live(server, "scaled")}.isdisjoint(one)


def test_a_replica_that_waits_says_why(server: RunningServer) -> None:
    for node in server.ask("GET", "/nodes").json["items"]:
        server.ask("POST", f"/nodes/{node['name']}/drain", {"reason": "for a while"})
    try:
        server.ask("POST", "/services", body("patient"))

        def problems() -> list[str]:
            shown = server.ask("GET", "/services/patient").json["replica_jobs"]
            return [one["problem"] or "" for one in shown if one["state"] == "waiting"]

        wait_for(lambda: any("drain" in one for one in problems()), "why it waits")
    finally:
        for node in server.ask("GET", "/nodes").json["items"]:
            server.ask("POST", f"/nodes/{node['name']}/resume")
        server.ask("POST", "/services/patient/stop")


def test_its_owner_opens_it_in_a_browser_and_open_requests_are_answered_before_it_goes(
    server: RunningServer,
) -> None:
    with running(server, "slow") as url:
        visitor = ProxyBrowser(server).log_in()
        assert visitor.follow_redirects(f"{url}echo")[1].json["target"] == "/echo"
        with visitor.open_response("GET", f"{url}parts") as response:
            assert response.read(5) == b"first"
            server.ask("POST", "/services/slow/stop")
            wait_for(lambda: [one["state"] for one in live(server, "slow")] == ["draining"], "it drains")
            assert visitor.get(f"{url}echo").status == 502
            (replica,) = live(server, "slow")
            assert replica["open_requests"] == 1
            port = int((server.home / f"jobs/{replica['job_id']}/checkpoints/.session-1").read_text())
            connection = http.client.HTTPConnection("127.0.0.1", port)
            connection.request("GET", "/release")
            connection.getresponse().read()
            connection.close()
            assert response.read() == b"second"


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "12"}, "name"),
        ({"name": "Upper"}, "name"),
        ({"name": "ends-"}, "name"),
        ({"command": []}, "command"),
        ({"script": "#!/bin/sh\ntrue"}, "script"),
        ({"array": "0-3"}, "array"),
        ({"tasks": 2}, "tasks"),
        ({"held": True}, "held"),
        ({"replicas": 101}, "replicas"),
        ({"visibility": "world"}, "visibility"),
        ({"health": {"path": "no slash"}}, "health.path"),
        ({"health": {"interval": 0}}, "health.interval"),
        ({"kind": "batch"}, "kind"),
    ],
)
def test_what_makes_no_sense_is_refused(server: RunningServer, fields: dict[str, object], field: str) -> None:
    answer = server.ask("POST", "/services", {**body("fine"), **fields})
    assert answer.status == 422, answer.body
    assert field in answer.error["fields"] or "command" in answer.error["message"], answer.body


def test_a_name_is_taken_once_and_free_when_removed(server: RunningServer) -> None:
    held = {"cpus": 1, "memory": "64M", "replicas": 0}
    assert server.ask("POST", "/services", body("mine", **held)).status == 201
    assert server.ask("POST", "/services", body("mine", **held)).status == 409
    assert server.ask("DELETE", "/services/mine").status == 409
    server.ask("POST", "/services/mine/stop")
    assert server.ask("DELETE", "/services/mine").status == 204
    assert server.ask("GET", "/services/mine").status == 404
    assert server.ask("PUT", "/services/mine", body("other")).status == 422


@needs_root
def test_others_see_and_use_only_what_they_may(server: RunningServer, ann: Person, bob: Person) -> None:
    with running(server, "anns", ann.uid) as url:
        for method, path, sent in (
            ("GET", "/services/anns", None),
            ("POST", "/services/anns/key", {}),
            ("PUT", "/services/anns", body("anns")),
            ("PATCH", "/services/anns", {"replicas": 5}),
            ("POST", "/services/anns/stop", {}),
            ("DELETE", "/services/anns", None),
        ):
            assert server.ask(method, path, sent, uid=bob.uid).status == 404, path
        assert server.ask("GET", "/services", uid=bob.uid).json["items"] == []
        bobs = ProxyBrowser(server).log_in(bob.uid)
        assert bobs.follow_redirects(url)[1].status == 404
        assert bobs.get(f"{server.url}/services/anns").status == 404
        server.ask("PATCH", "/services/anns", {"visibility": "public"}, uid=ann.uid)
        assert not {"job", "replica_jobs"} & look(server, "anns", bob.uid).keys()
        told = server.ask("POST", "/services/anns/key", {}, uid=bob.uid).json
        by_program = ProxyBrowser(server).get(f"{url}echo", headers=[("Authorization", f"Bearer {told['key']}")])
        assert by_program.status == 200
        assert bobs.follow_redirects(url)[1].status == 403  # all paths share one origin here: not in a browser
        assert server.ask("PATCH", "/services/anns", {"replicas": 5}, uid=bob.uid).status == 403
        server.ask("PATCH", "/services/anns", {"visibility": "private"}, uid=ann.uid)
        again = ProxyBrowser(server).get(f"{url}echo", headers=[("Authorization", f"Bearer {told['key']}")])
        assert again.status == 403


@needs_root
def test_with_a_host_name_each_a_public_service_opens_in_anybodys_browser(ann: Person, bob: Person) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = f'server.proxy_port = {port}\nserver.proxy_url = "http://*.sessions.test:{port}"\n'
    server = RunningServer(settings)
    try:
        with running(server, "shown", ann.uid, visibility="public") as url:
            assert url == f"http://shown.sessions.test:{port}/s/shown/"
            visitor = ProxyBrowser(server).log_in(bob.uid)
            here, host = f"http://127.0.0.1:{port}", f"shown.sessions.test:{port}"
            told = [("Host", host), ("Accept", "text/html")]
            asked = visitor.get(f"{here}/s/shown/echo", headers=told)
            way = urlsplit(asked.location)  # to the control plane, wherever that is found
            let_in = visitor.get(f"{server.url}{way.path}?{way.query}", headers=[("Accept", "text/html")])
            assert let_in.location.startswith(f"http://{host}/s/shown/_heliostat/enter?code=")
            entered = visitor.get(let_in.location.replace(f"http://{host}", here), headers=told)
            assert entered.location == "/s/shown/echo"
            got = visitor.get(f"{here}/s/shown/echo", headers=told)
            assert (got.status, got.json["target"]) == (200, "/echo")
            for other in (f"other.sessions.test:{port}", f"127.0.0.1:{port}", f"1.sessions.test:{port}"):
                assert visitor.get(f"{here}/s/shown/echo", headers=[("Host", other)]).status == 404
    finally:
        server.remove()


def test_its_pages_show_it_and_let_its_owner_change_it(server: RunningServer) -> None:
    with running(server, "paged") as url:
        visitor = ProxyBrowser(server).log_in()
        assert f'href="{url}"' in visitor.get(f"{server.url}/services").body.decode()
        page = visitor.get(f"{server.url}/services/paged").body.decode()
        assert "1 of 1 replicas are healthy." in page
        token = page.partition('name="csrf" value="')[2].partition('"')[0]
        origin = [("Origin", server.url), ("Content-Type", "application/x-www-form-urlencoded")]
        sent = f"csrf={token}&replicas=2".encode()
        assert visitor.send("POST", f"{server.url}/services/paged/scale", body=sent, headers=origin).status == 303
        until_whole(server, "paged")
        assert len(live(server, "paged")) == 2
        wrong = f"csrf={token}&replicas=many".encode()
        answer = visitor.send("POST", f"{server.url}/services/paged/scale", body=wrong, headers=origin)
        assert answer.status == 422
        unsigned = visitor.send("POST", f"{server.url}/services/paged/stop", body=b"", headers=origin)
        assert unsigned.status == 403


def test_the_commands_do_all_of_it(server: RunningServer, tmp_path: Path) -> None:
    file = tmp_path / "service.yaml"
    file.write_text(json.dumps(body("typed")))
    assert "1 of 1 replicas are healthy" in helio(server, "service", "submit", str(file), "--wait")
    assert "typed" in helio(server, "service", "list")
    assert f"{proxy_url(server)}/s/typed/" in helio(server, "service", "show", "typed")
    assert json.loads(helio(server, "service", "scale", "typed", "2", "--wait", "--json"))["healthy"] == 2
    file.write_text(json.dumps(body("typed", env={"VERSION": 2})))
    assert json.loads(helio(server, "service", "update", str(file), "--wait", "--json"))["generation"] == 2
    helio(server, "service", "restart", "typed", "--wait")
    helio(server, "service", "logs", "typed", "--tail", "5")
    assert len(helio(server, "service", "key", "typed").strip()) > 30
    helio(server, "service", "stop", "typed")
    wait_for(lambda: live(server, "typed") == [], "it is gone")
    helio(server, "service", "remove", "typed")
    words = [PYTHON, "-m", "http.server", "{port}", "--bind", "127.0.0.1"]
    options = ["--name", "typed", "--cpus", "1", "--memory", "64M", "--health", "/", "--wait", "--"]
    assert "/s/typed/" in helio(server, "service", "run", *options, *words)
    helio(server, "service", "stop", "typed")


def helio(server: RunningServer, *words: str) -> str:
    argv = [sys.executable, "-m", "heliostat.cli.main", *words]
    environment = {**os.environ, "HELIOSTAT_HOME": str(server.home)}
    ran = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
