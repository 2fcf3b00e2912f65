import json
import threading
from pathlib import Path

import pytest

from heliostat.client import Client
from heliostat.errors import Forbidden, HeliostatError, Invalid, NotFound, ServerUnreachable
from unit.client.stand_in_server import answer

JOB = {"id": 7, "state": "pending", "name": "train", "exit_code": None, "reason": None}


def header(request: bytes, name: str) -> str | None:
    for line in request.split(b"\r\n\r\n")[0].decode().split("\r\n"):
        key, _, value = line.partition(": ")
        if key.lower() == name.lower():
            return value
    return None


def body(request: bytes) -> dict:
    return json.loads(request.split(b"\r\n\r\n", 1)[1])


def test_one_connection_carries_many_requests(serve, tmp_path):
    server = serve(answer({"version": "1"}), answer({"version": "2"}))
    client = Client(home=tmp_path)
    assert [client.status()["version"], client.status()["version"]] == ["1", "2"]
    assert server.connections == 1


def test_a_socket_path_longer_than_the_kernel_takes_still_connects(serve, tmp_path):
    home = tmp_path / ("a" * 80) / ("b" * 80)
    serve(answer({"version": "1"}), home=home)
    assert Client(home=home).status()["version"] == "1"


def test_a_dead_kept_connection_is_replaced_once_for_a_request_that_may_be_repeated(serve, tmp_path):
    server = serve(answer({"version": "1"}), None, answer({"version": "2"}))
    client = Client(home=tmp_path)
    client.status()
    assert client.status()["version"] == "2"
    assert len(server.requests) == 3


def test_a_repeated_submission_carries_the_same_key(serve, tmp_path):
    server = serve(answer({"version": "1"}), None, answer(JOB, 201))
    client = Client(home=tmp_path)
    client.status()
    assert client.submit("true").id == 7
    keys = [header(request, "Idempotency-Key") for request in server.requests[1:]]
    assert keys[0]
    assert keys[0] == keys[1]


@pytest.mark.parametrize("key", ["a\nb", "a\r\nX: y", "é", "\0"])
def test_a_header_that_cannot_be_sent_is_refused_and_the_client_can_go_on(serve, tmp_path, key):
    server = serve(answer(JOB, 201), answer({"version": "1"}))
    client = Client(home=tmp_path)
    client.submit("true")
    with pytest.raises(Invalid, match="Idempotency-Key must be one line of ASCII characters"):
        client.submit("true", idempotency_key=key)
    assert client.status()["version"] == "1"
    assert len(server.requests) == 2


def test_a_request_that_cannot_be_written_leaves_nothing_for_the_next_one(serve, tmp_path):
    server = serve(answer({"version": "1"}))
    client = Client(home=tmp_path)
    with pytest.raises(ServerUnreachable):
        client._transport.call("GET", "/a path")
    assert client.status()["version"] == "1"
    assert server.requests[0].startswith(b"GET /api/v1/status HTTP/1.1\r\n")


def test_a_request_that_must_not_be_repeated_is_sent_once(serve, tmp_path):
    server = serve(answer({"version": "1"}), None, answer(JOB))
    client = Client(home=tmp_path)
    client.status()
    with pytest.raises(ServerUnreachable, match="closed the connection"):
        client.jobs.requeue(7)
    assert len(server.requests) == 2


def test_an_idle_connection_the_server_has_closed_is_not_used(serve, tmp_path):
    closing = answer({"version": "1"}, X="y").replace(b"X: y", b"X: Connection: close")
    serve(closing, answer(JOB))
    client = Client(home=tmp_path)
    client.status()
    kept = client._transport._local.connection
    deadline = threading.Event()
    while not kept.was_closed_by_server():
        assert not deadline.wait(0.01)
    assert client.jobs.requeue(7).id == 7


def test_a_fresh_connection_that_breaks_is_not_tried_again(serve, tmp_path):
    server = serve(None, answer({"version": "1"}))
    with pytest.raises(ServerUnreachable):
        Client(home=tmp_path).status()
    assert len(server.requests) == 1


def test_nobody_listening_says_how_to_start_a_server(tmp_path):
    with pytest.raises(ServerUnreachable) as caught:
        Client(home=tmp_path).status()
    assert "helio up" in caught.value.hint


def test_nobody_listening_over_tcp_names_the_address():
    with pytest.raises(ServerUnreachable, match=r"http://127\.0\.0\.1:1"):
        Client(url="http://127.0.0.1:1").status()


@pytest.mark.parametrize(("status", "expected"), [(404, NotFound), (403, Forbidden), (422, Invalid)])
def test_errors_come_as_exceptions_with_hint_and_fields(serve, tmp_path, status, expected):
    said = {"code": "no_job", "message": "There is no job 7.", "hint": "helio ps", "fields": {"id": "unknown"}}
    serve(answer({"error": said}, status))
    with pytest.raises(expected) as caught:
        Client(home=tmp_path).jobs.get(7)
    error = caught.value
    assert (error.message, error.hint, error.code, error.fields) == (
        "There is no job 7.",
        "helio ps",
        "no_job",
        {"id": "unknown"},
    )


def test_an_error_that_is_no_json_still_says_its_status(serve, tmp_path):
    serve(answer(b"<h1>Bad gateway</h1>", 502))
    with pytest.raises(HeliostatError, match="502"):
        Client(home=tmp_path).status()


def test_an_answer_that_is_no_json_is_not_taken_for_ours(serve, tmp_path):
    serve(answer(b"<h1>It works!</h1>"))
    with pytest.raises(HeliostatError, match="not from a Heliostat server"):
        Client(home=tmp_path).status()


def test_threads_have_connections_of_their_own(serve, tmp_path):
    server = serve(answer({"version": "1"}), answer({"version": "2"}))
    client = Client(home=tmp_path)
    client.status()
    client.close()
    heard: list[str] = []
    thread = threading.Thread(target=lambda: heard.append(client.status()["version"]))
    thread.start()
    thread.join(120)
    assert heard == ["2"]
    assert server.connections == 2


def test_names_are_quoted_in_paths(serve, tmp_path):
    server = serve(answer({"name": "x"}))
    Client(home=tmp_path).users.get("../tokens?x=1")
    assert server.requests[0].startswith(b"GET /api/v1/users/..%2Ftokens%3Fx%3D1 HTTP/1.1")


def test_a_token_is_sent_as_bearer(serve, tmp_path: Path):
    server = serve(answer({"version": "1"}))
    Client(home=tmp_path, token="helio_secret").status()
    assert header(server.requests[0], "Authorization") == "Bearer helio_secret"
