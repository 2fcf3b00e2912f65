"""Answers to the idle ladder over HTTP: over the API and on the page of the job, and for whom."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from integration.running_server import RunningServer, wait_for
from integration.web.surfing import Surfer

PASSWORD = "correct horse battery"


@pytest.fixture
def job(server: RunningServer) -> Iterator[int]:
    number = server.submit(command="sleep 36000", gpus=1, cpus=1, memory="64M")
    wait_for(lambda: server.show(number)["state"] == "running", "the job to run", lambda: server.log)
    yield number
    server.ask("POST", f"/jobs/{number}/cancel?force=true", {})


@pytest.fixture(scope="module")
def stranger(server: RunningServer) -> Surfer:
    assert server.ask("POST", "/users", {"name": "stranger", "password": PASSWORD}).status == 201
    surfer = Surfer(server)
    surfer.log_in("stranger", PASSWORD)
    return surfer


def test_an_answer_is_shown_until_its_time(server: RunningServer, job: int) -> None:
    assert server.show(job)["idle_gpus"] is None
    answer = server.ask("POST", f"/jobs/{job}/keep", {"until": "+4h"})
    assert answer.status == 200
    kept = datetime.fromisoformat(answer.json["idle_gpus"]["kept_until"])
    assert timedelta(hours=3, minutes=50) < kept - datetime.now(UTC) <= timedelta(hours=4)
    assert answer.json["idle_gpus"]["answers_left"] == 2
    assert server.show(job)["idle_gpus"] == answer.json["idle_gpus"]


@pytest.mark.parametrize("until", ["+0", "+25h", "2020-01-01T00:00Z", "soon", None, 5, "+" + "9" * 40 + "h"])
def test_a_time_that_cannot_be_is_refused(server: RunningServer, job: int, until: object) -> None:
    refused = server.ask("POST", f"/jobs/{job}/keep", {"until": until})
    assert refused.status == 422
    assert "until" in refused.error["fields"]


def test_the_page_offers_answers_with_one_click(server: RunningServer, job: int, stranger: Surfer) -> None:
    owner = Surfer(server).by_link()
    server.ask("POST", f"/jobs/{job}/keep", {"until": "+1h"})
    assert "2 answers left" in owner.get(f"/jobs/{job}").text
    for surfer, expected in ((owner, 303), (stranger, 403)):
        token = surfer.get("/").form_token
        assert surfer.post(f"/jobs/{job}/keep", [("csrf", token), ("for", "4 hours")]).status == expected
    token = owner.get("/").form_token
    assert owner.post(f"/jobs/{job}/keep", [("csrf", token), ("for", "a year")]).status == 404
    assert owner.post(f"/jobs/{job}/keep", [("for", "4 hours")]).status == 403
    assert owner.get(f"/jobs/{job}/keep").status in {404, 405}
    assert "1 answer left" in owner.get(f"/jobs/{job}").text
    owner.post(f"/jobs/{job}/keep", [("csrf", token), ("for", "1 hour")])
    assert "All answers of this job are used." in owner.get(f"/jobs/{job}").text
    assert server.ask("POST", f"/jobs/{job}/keep", {"until": "+1h"}).status == 409
