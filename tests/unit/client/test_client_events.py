import pytest

from heliostat.client import Client, LogChunk
from heliostat.client.event_stream import ServerSentEvent, parse_event_stream
from heliostat.errors import NotFound
from unit.client.stand_in_server import answer, stream


def lines(text: str) -> list[bytes]:
    return text.encode().splitlines(keepends=True)


def test_lines_of_data_are_joined():
    assert list(parse_event_stream(lines("event: a\ndata: one\ndata: two\n\n"))) == [
        ServerSentEvent("a", "one\ntwo")
    ]


def test_comments_keep_alive_and_say_nothing():
    assert list(parse_event_stream(lines(": still here\n\n: and here\ndata: x\n\n"))) == [
        ServerSentEvent("message", "x")
    ]


def test_an_event_without_its_empty_line_is_left_out():
    assert list(parse_event_stream(lines("data: whole\n\ndata: cut of"))) == [ServerSentEvent("message", "whole")]


def test_only_the_first_space_after_the_colon_is_dropped():
    assert next(parse_event_stream(lines("data:  x\n\ndata:y\n\n"))).data == " x"


def test_the_id_is_kept_and_carriage_returns_are_not():
    assert list(parse_event_stream(lines("id: 5\r\nevent: job\r\ndata: {}\r\n\r\n"))) == [
        ServerSentEvent("job", "{}", "5")
    ]


def test_a_followed_log_ends_with_the_job(serve, tmp_path):
    text = (
        'event: chunk\ndata: {"stream": "stdout", "offset": 0, "next_offset": 3, "text": "hi\\n"}\n\n'
        ": still here\n\n"
        'event: end\ndata: {"state": "completed", "exit_code": 0}\n\n'
    )
    serve(stream(text))
    follower = Client(home=tmp_path).logs.follow(7)
    assert list(follower) == [LogChunk("stdout", 0, "hi\n")]
    assert follower.end is not None
    assert follower.end.exit_code == 0


def test_a_follower_goes_on_at_the_byte_where_the_connection_broke(serve, tmp_path):
    server = serve(
        stream(
            'event: chunk\ndata: {"stream": "stderr", "offset": 0, "next_offset": 4, "text": "\\ufffd\\n"}\n\n'
        ),
        stream('event: end\ndata: {"state": "failed", "exit_code": 3}\n\n'),
    )
    follower = Client(home=tmp_path).logs.follow(7)
    assert len(list(follower)) == 1
    assert b"stdout_offset=0&stderr_offset=4" in server.requests[1]


def test_following_a_job_that_is_not_there_says_so_at_once(serve, tmp_path):
    serve(answer({"error": {"code": "not_found", "message": "There is no job 9.", "hint": None}}, 404))
    with pytest.raises(NotFound, match=r"There is no job 9\."):
        list(Client(home=tmp_path).logs.follow(9))


def test_followed_events_go_on_after_the_last_one_heard(serve, tmp_path):
    event = '{"id": 41, "job_id": 7, "attempt": 1, "at": "x", "kind": "running", "state": "running"}'
    server = serve(stream(f"id: 41\nevent: job\ndata: {event}\n\n"), stream(""), answer({}, 404))
    events = Client(home=tmp_path).events.follow(after=3)
    assert next(events)["id"] == 41
    with pytest.raises(NotFound):
        next(events)
    assert [b"after=3" in server.requests[0], b"after=41" in server.requests[1]] == [True, True]
