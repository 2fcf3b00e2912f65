"""More time for a running session: its wrapper learns of it, whatever happens to the server."""

import os

from integration.running_server import RunningServer, wait_for
from integration.unix_users import Person, needs_root
from support.proxy_browser import ProxyBrowser

WAITING = {"app": "custom", "command": ["sleep", "600"], "cpus": 1}


def start(server: RunningServer, uid: int | None = None, **more: object) -> int:
    number: int = server.ask("POST", "/sessions", {**WAITING, **more}, uid=uid).json["id"]
    wait_for(lambda: server.show(number, uid)["state"] == "running", "it runs")
    return number


def test_an_extended_session_outlives_its_first_limit_also_while_the_server_is_dead(server: RunningServer) -> None:
    number = start(server, time_limit=15, grace_seconds=1)
    answer = server.ask("POST", f"/jobs/{number}/extend", {"time": "1h"})
    assert (answer.status, answer.json["time_limit_seconds"]) == (200, 3615)
    brief = start(server, time_limit=15, grace_seconds=1)
    os.kill(server.pid, 9)
    server.process.wait(120)
    server.start()
    assert server.finished(brief)["state"] == "timed_out"  # started later, with the same limit
    assert server.show(number)["state"] == "running"
    assert server.show(number)["time_limit_seconds"] == 3615
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    assert server.finished(number)["state"] == "cancelled"


def test_what_cannot_be_extended_is_refused(server: RunningServer) -> None:
    number = start(server, time_limit=600)
    for time in ("soon", "", 0, -5, "-1h", 10**12):
        assert server.ask("POST", f"/jobs/{number}/extend", {"time": time}).status == 422
    assert server.ask("POST", f"/jobs/{number}/extend", {"time": "365d"}).error["fields"].keys() == {"time"}
    page = ProxyBrowser(server).log_in().get(f"{server.url}/sessions/{number}").body.decode()
    assert f'action="/sessions/{number}/extend"' in page
    server.ask("POST", f"/jobs/{number}/cancel?force=true")
    server.finished(number)
    assert server.ask("POST", f"/jobs/{number}/extend", {"time": "1h"}).status == 409
    assert server.ask("POST", "/jobs/999999/extend", {"time": "1h"}).status == 404


@needs_root
def test_only_sessions_of_ones_own_can_be_extended(server: RunningServer, ann: Person, bob: Person) -> None:
    mine = start(server, ann.uid, time_limit=600)
    batch = server.submit(ann.uid, command=["sleep", "600"], time_limit=600, cpus=1)
    assert server.ask("POST", f"/jobs/{mine}/extend", {"time": "1h"}, uid=bob.uid).status == 403
    assert server.ask("POST", f"/jobs/{batch}/extend", {"time": "1h"}, uid=ann.uid).status == 403
    assert (
        server.ask("POST", f"/jobs/{mine}/extend", {"time": "1h"}, uid=ann.uid).json["time_limit_seconds"] == 4200
    )
    assert server.ask("POST", f"/jobs/{batch}/extend", {"time": 60}).json["time_limit_seconds"] == 660  # an admin
    for job in (mine, batch):
        server.ask("POST", f"/jobs/{job}/cancel?force=true", uid=ann.uid)
