"""What one person does to slow the server down for all others."""

import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from integration.running_server import RunningServer
from integration.web.surfing import Seen, Surfer

SMALL = {"cpus": 1, "memory": "256M"}


def test_a_part_that_is_named_a_thousand_times_is_made_once(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    once = surfer.get("/jobs", X_Fragment="list").text
    assert surfer.get("/jobs", X_Fragment=",".join(["list"] * 1000)).text == once


def test_a_made_up_cookie_gives_a_stranger_no_more_room_than_none(server: RunningServer) -> None:
    form = [("name", "x" * (65 * 2**10))]
    assert Surfer(server, {"helio_session": "made-up"}).post("/login", form).status == 413
    known = Surfer(server).by_link()
    token = known.get("/jobs/new").form_token
    sent = [("csrf", token), ("do", "import"), ("import", '{"command": "' + "x" * (65 * 2**10) + '"}')]
    assert known.post("/jobs/new", sent).status != 413


@pytest.mark.parametrize("proof", ["Bearer x", "Bearer helio_" + "x" * 43, "Basic eDp4", "Other x"])
def test_made_up_proof_gives_a_stranger_no_room_to_speak_of(server: RunningServer, proof: str) -> None:
    body = b'{"jobs": [' + b" " * 2**21 + b"]}"
    answer = server.ask("POST", "/jobs/bulk", raw=body, headers={"Authorization": proof}, tcp=True)
    assert (answer.status, answer.error["code"]) == (413, "too_large")


def test_a_token_gives_all_the_room_there_is(server: RunningServer) -> None:
    token = server.ask("POST", "/tokens", {"name": "large"}).json["token"]
    body = b'{"jobs": [' + b" " * 2**21 + b"]}"
    answer = server.ask("POST", "/jobs/bulk", raw=body, headers={"Authorization": f"Bearer {token}"}, tcp=True)
    assert answer.status == 422


def test_others_are_answered_while_a_large_form_is_read(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}
    body = "a=" + "%41" * (4 * 2**20 // 3 - 100)

    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(surfer.send, "POST", "/jobs/new", body, kind)
        answered = 0
        while not sent.done():
            server.ask("GET", "/status")
            answered += not sent.done()
    assert sent.result().status == 403
    assert answered >= 3, "one or two may have come before the form"


def test_nobody_has_many_job_files_read_at_once(server: RunningServer) -> None:
    surfer = Surfer(server).by_link()
    token = surfer.get("/jobs/new").form_token
    sent = [("csrf", token), ("do", "import"), ("import", "[" + "a," * 30_000)]

    def read(_: int) -> int:
        return surfer.post("/jobs/new", sent).status

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(read, range(4))) == {422, 429}


def test_nobody_searches_logs_many_times_at_once(server: RunningServer) -> None:
    job = server.run(command=["sh", "-c", "yes 0123456789 | head -c 400000000"], **SMALL)["id"]
    surfer = Surfer(server).by_link()

    def search(_: int) -> Seen:
        return surfer.get(f"/jobs/{job}?find=nowhere")

    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(search, range(6)))
    assert {one.status for one in seen} == {200}
    told = [bool(re.search("Your previous search is still running", one.text)) for one in seen]
    assert any(told)
    assert not all(told)
    assert "No lines found" in search(0).text
