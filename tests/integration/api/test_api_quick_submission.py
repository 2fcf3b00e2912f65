"""One job in the usual form goes a short way; every other form goes the ordinary way, with the same answers."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import Answer, RunningServer

SHORT, ORDINARY = "application/json", "application/json; charset=utf-8"
WAYS = (SHORT, ORDINARY)
OWN = {"id", "submitted_at", "name"}  # of each job


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    server = RunningServer('engine = "simulated"\nsimulated_nodes = "1x8xA100"\nmax_request_bytes = 1048576\n')
    yield server
    server.remove()


def sent(server: RunningServer, kind: str, body: dict[str, Any], **headers: str) -> Answer:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return server.ask("POST", "/jobs", raw=json.dumps(body).encode(), headers={"Content-Type": kind, **named})


@pytest.mark.parametrize(
    "body",
    [
        {"command": "true", "held": True},
        {"command": ["echo", "é", "\ud800"], "held": True, "gpus": 0.5, "memory": "1G", "env": {"A": "1"}},
        {"command": "true", "held": True, "array": "0-3"},
        {"command": "true", "project": "nobody's"},
        {"command": "true", "colour": "red"},
        {"command": "true", "gpus": 900},
        {"command": ""},
        {},
    ],
    ids=str,
)
def test_both_ways_give_the_same_answer(server: RunningServer, body: dict[str, Any]) -> None:
    short, ordinary = (sent(server, kind, body) for kind in WAYS)
    assert short.status == ordinary.status
    if "count" in short.json:
        assert short.json["count"] == ordinary.json["count"] == 4
        return
    assert without_own(short.json) == without_own(ordinary.json)


def without_own(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in answer.items() if name not in OWN}


@pytest.mark.parametrize("ways", [WAYS, WAYS[::-1], (SHORT, SHORT)], ids=str)
def test_a_key_said_again_on_either_way_gives_the_same_job(server: RunningServer, ways: tuple[str, str]) -> None:
    body = {"command": "true", "held": True}
    first, again = (sent(server, kind, body, Idempotency_Key=f"key of {ways}") for kind in ways)
    assert (first.status, again.status) == (201, 201)
    assert first.json["id"] == again.json["id"]


@pytest.mark.parametrize("key", ["", "k" * 201])
def test_a_key_that_is_none_is_refused_on_both(server: RunningServer, key: str) -> None:
    answers = [sent(server, kind, {"command": "true"}, Idempotency_Key=key) for kind in WAYS]
    assert [answer.status for answer in answers] == [422, 422]
    assert answers[0].json == answers[1].json


@pytest.mark.parametrize("kind", WAYS)
def test_a_stranger_is_refused_on_both(server: RunningServer, kind: str) -> None:
    answer = sent(server, kind, {"command": "true"}, Authorization="Bearer made-up")
    assert answer.status == 401


@pytest.mark.parametrize("kind", WAYS)
def test_a_body_too_large_is_refused_on_both(server: RunningServer, kind: str) -> None:
    answer = sent(server, kind, {"command": "true", "env": {"A": "x" * 2**20}})
    assert answer.status == 413
