"""What `helio notification` sends and prints."""

import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from unit.client.stand_in_server import answer

NOTIFICATION = {
    "id": 3,
    "user": "anna",
    "project": None,
    "channel": "webhook",
    "address": "https://hooks.example.org/…",
    "triggers": ["ended"],
    "created_at": "2026-11-01T09:00:00Z",
    "sent_at": None,
    "problem": "hooks.example.org answered \x1b[31m500",
    "pending_deliveries": 1,
    "failed_deliveries": 0,
}


def sent(server: Any) -> Any:
    return json.loads(server.requests[0].partition(b"\r\n\r\n")[2])


def test_notifications_are_listed_and_cannot_steer_the_terminal(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"items": [NOTIFICATION]}))
    ran = helio("notification")
    assert ran.code == 0
    assert "hooks.example.org" in ran.out
    assert "\x1b" not in ran.out


def test_an_empty_list_shows_how_to_add_a_notification(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"items": []}))
    assert "helio notification add email" in helio("notification", "list").out


def test_a_secret_is_printed_alone_on_its_line(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer({**NOTIFICATION, "secret": "hns_1"}, 201))
    ran = helio(
        "notification", "add", "webhook", "https://hooks.example.org/x", "--on", "failed,late", "--on=started"
    )
    assert ran.out.splitlines()[-1] == "hns_1"
    assert sent(server) == {
        "channel": "webhook",
        "address": "https://hooks.example.org/x",
        "triggers": ["failed", "late", "started"],
    }


def test_an_address_that_is_a_secret_comes_from_a_pipe(
    helio: Any, serve: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("https://hooks.example.org/secret\n"))
    server = serve(answer(NOTIFICATION, 201))
    assert helio("notification", "add", "chat", "--requested-only", "--project", "vision").code == 0
    assert sent(server) == {
        "channel": "chat",
        "address": "https://hooks.example.org/secret",
        "triggers": [],
        "project": "vision",
    }


def test_two_ways_to_say_when_are_one_too_many(helio: Any) -> None:
    assert helio("notification", "add", "email", "a@example.org", "--on", "ended", "--requested-only").code == 2


def test_a_test_that_did_not_arrive_ends_with_1_and_says_why(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"arrived": False, "problem": "there is no host x"}), answer({"arrived": True, "problem": None}))
    ran = helio("notification", "test", "3")
    assert (ran.code, ran.out) == (1, "")
    assert "there is no host x" in ran.err
    ran = helio("notification", "test", "3", "--json")
    assert (ran.code, json.loads(ran.out)) == (0, {"id": 3, "arrived": True, "problem": None})


def test_a_notification_is_removed(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer(None, 204))
    assert helio("notification", "remove", "3").out == "Notification 3 is removed.\n"
    assert server.requests[0].startswith(b"DELETE /api/v1/notifications/3 ")


def test_what_is_to_be_retried_and_told_is_sent_as_words(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer({"id": 1, "state": "pending"}, 201))
    options = ["--max-retries=3", "--retry-on=lost,exit:75", "--retry-delay=30s", "--notify=ended,late"]
    assert helio("run", "--no-record", *options, "--", "true").code == 0
    body = sent(server)
    assert {name: body[name] for name in ("max_retries", "retry_on", "retry_delay", "notify")} == {
        "max_retries": 3,
        "retry_on": ["lost", "exit:75"],
        "retry_delay": "30s",
        "notify": ["ended", "late"],
    }
