"""What `helio announcement` sends and prints."""

import json
from collections.abc import Callable
from typing import Any

from unit.client.stand_in_server import answer

ANNOUNCEMENT = {
    "id": 3,
    "text": "new disk\non \x1b[31mSaturday",
    "author": "root",
    "created_at": "2026-11-01T09:00:00Z",
    "ends_at": None,
}


def test_news_are_listed_on_one_line_each_and_cannot_steer_the_terminal(
    helio: Any, serve: Callable[..., Any]
) -> None:
    serve(answer({"items": [ANNOUNCEMENT]}))
    ran = helio("announcement", "list")
    assert ran.code == 0
    assert "new disk on" in ran.out
    assert "\x1b" not in ran.out


def test_no_news_are_said_to_be_none(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"items": []}))
    assert helio("announcement", "list").out == "No announcements.\n"


def test_news_alone_lists_them(helio: Any, serve: Callable[..., Any]) -> None:
    serve(answer({"items": []}))
    ran = helio("announcement")
    assert (ran.code, ran.out) == (0, "No announcements.\n")


def test_news_are_added_with_their_end_in_the_local_zone(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer(ANNOUNCEMENT, 201))
    ran = helio("announcement", "add", "new disk", "--until", "2026-12-05 10:00")
    assert ran.code == 0, ran.err
    assert "helio announcement remove 3" in ran.out
    head, _, sent = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /api/v1/announcements ")
    body = json.loads(sent)
    assert body["text"] == "new disk"
    assert body["ends_at"].startswith("2026-12-05T10:00:00")


def test_an_end_that_is_no_time_is_refused_before_anything_is_sent(helio: Any) -> None:
    ran = helio("announcement", "add", "new disk", "--until", "soon")
    assert ran.code == 2
    assert "'soon' is not a time" in ran.err


def test_news_are_removed_and_json_says_so(helio: Any, serve: Callable[..., Any]) -> None:
    server = serve(answer(None, 204))
    ran = helio("announcement", "remove", "3", "--json")
    assert json.loads(ran.out) == {"id": 3, "removed": True}
    assert server.requests[0].startswith(b"DELETE /api/v1/announcements/3 ")
