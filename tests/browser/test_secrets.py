"""Nobody sees what their role may not see: a plain user opens every address there is.

Somebody else's job carries a marker wherever people put secrets. It must appear nowhere: in no page, no part of a
page, no stream, whatever is asked for.
"""

import re
import threading
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Response

from heliostat.web.routes import route_paths
from integration.running_server import RunningServer
from integration.web.surfing import Surfer

MARK = "xyzzy-4711-plugh"
PASSWORD = "correct horse battery"
_PARTS = re.compile(r"data-live=\"([^\"]+)\"")


@pytest.fixture(scope="module")
def jobs(server: RunningServer) -> list[int]:
    """Of the admin: one that runs, one that waits, one that is over, one array."""
    secret = {"name": f"job-{MARK}", "env": {"TOKEN": f"env-{MARK}"}, "gpus": 1}
    made = [
        server.submit(command=["sleep", "600", MARK], **secret),
        server.submit(command=["echo", MARK], **(secret | {"gpus": 4, "held": True})),
        server.submit(command=["echo", MARK], **secret),
        server.submit(command=["echo", MARK], **secret),
    ]
    server.ask("POST", f"/jobs/{made[2]}/cancel", {})
    assert server.ask("POST", "/users", {"name": "curious", "password": PASSWORD}).status == 201
    for job in made:
        log = server.home / "jobs" / str(job) / "1.stdout"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"log-{MARK}\n")
    return made


def addresses(jobs: list[int]) -> list[str]:
    """Every GET route, with the number of each job and other names in its place."""
    named = [*map(str, jobs), "root", "default", "a100-01"]
    found = [
        re.sub(r"\{[^}]+\}", name, path)
        for path in route_paths("GET")
        for name in (named if "{" in path else [""])
    ]
    asked = ["whose=all", f"whose=all&q={MARK}", "whose=all&user=root", "whose=all&sort=-gpus", f"q={MARK}"]
    like = [f"from={jobs[0]}", f"job={jobs[0]}", f"like={jobs[0]}", f"copy={jobs[0]}", f"again={jobs[0]}"]
    plain = [path for path in found if not path.startswith(("/live", "/login/link"))]
    return plain + [f"{path}?{query}" for path in route_paths("GET") if "{" not in path for query in asked + like]


def without_what_was_asked(text: str) -> str:
    """What one types comes back in the field and in links: that is no secret."""
    return re.sub(rf"(value=\"|q=){MARK}", r"\1", text)


def test_the_marker_is_seen_by_its_owner(page: Page, server: RunningServer, jobs: list[int]) -> None:
    page.goto(server.url + "/jobs?whose=all")
    assert f"job-{MARK}" in page.content()


def test_no_address_shows_a_plain_user_the_secrets_of_others(server: RunningServer, jobs: list[int]) -> None:
    surfer = Surfer(server)
    surfer.log_in("curious", PASSWORD)
    opened = 0
    for path in addresses(jobs):
        if path.startswith(("/live", "/login")):
            continue
        seen = surfer.get(path)
        assert MARK not in without_what_was_asked(seen.text), path
        assert MARK not in str(seen.headers), path
        opened += seen.status == 200
        parts = ",".join(dict.fromkeys([*_PARTS.findall(seen.text), "content", "list", "counts", "log", "head"]))
        refreshed = surfer.get(path, X_Fragment=parts)
        assert MARK not in without_what_was_asked(refreshed.text), f"{path} {parts}"
    assert opened > 3


def test_a_browser_of_a_plain_user_receives_no_secret_of_others(
    new_page: Callable[..., Page], server: RunningServer, jobs: list[int]
) -> None:
    page = new_page(log_in=False)
    texts: list[tuple[str, str]] = []

    def note(response: Response) -> None:
        if "/live" not in response.url and response.status == 200:
            texts.append((response.url, response.text()))

    page.goto(server.url + "/login")
    page.get_by_label("Name").fill("curious")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(server.url + "/")
    page.on("response", note)
    page.goto(server.url + "/jobs?whose=all")
    page.locator("[data-live-state=on]").wait_for()
    with page.expect_response(lambda response: response.request.headers.get("x-fragment") is not None):
        server.submit(command=["echo", MARK], name=f"later-{MARK}")
    assert MARK not in page.content()
    assert texts
    assert not [url for url, text in texts if MARK in text]


@pytest.mark.parametrize("topic", ["jobs", "nodes", "rules"])
def test_a_stream_says_that_something_changed_and_not_what(
    server: RunningServer, jobs: list[int], topic: str
) -> None:
    surfer = Surfer(server)
    surfer.log_in("curious", PASSWORD)
    with server.raw_connection(tcp=True) as wire:
        cookie = f"helio_session={surfer.cookies['helio_session']}"
        wire.sendall(f"GET /live?topic={topic} HTTP/1.1\r\nHost: x\r\nCookie: {cookie}\r\n\r\n".encode())
        while b": listening" not in (heard := wire.recv(4096)):
            assert heard
        threading.Timer(0.1, lambda: server.submit(command=["echo", MARK], name=f"told-{MARK}")).start()
        assert server.ask("POST", "/nodes/a100-01/drain", {"reason": "service"}).status == 200
        assert (
            server.ask("PATCH", "/projects/default", {"share": {"jobs": 2, "nodes": 3, "rules": 4}[topic]}).status
            == 200
        )
        heard = b""
        while b"event: change" not in heard:
            heard += wire.recv(4096)
        assert server.ask("POST", "/nodes/a100-01/resume", {}).status == 200
        assert MARK.encode() not in heard


def test_a_stream_about_somebody_elses_job_is_refused(server: RunningServer, jobs: list[int]) -> None:
    surfer = Surfer(server)
    surfer.log_in("curious", PASSWORD)
    for job in jobs:
        refused = surfer.get(f"/live?topic=jobs&topic=job:{job}")
        assert refused.status == 403
        assert MARK not in refused.text
