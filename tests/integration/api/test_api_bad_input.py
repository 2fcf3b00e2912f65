"""Whatever is sent, the answer is a precise 4xx in the one shape, and nothing is stored."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from integration.running_server import Answer, RunningServer

OBJECT = b'{"command": "true", '
LONGEST_ECHO = 1000


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """On the simulated engine: should a hostile command slip through, nothing runs it."""
    server = RunningServer(
        'server.engine = "simulated"\nserver.simulated_nodes = "1x8xA100"\nserver.max_request_bytes = 1048576\n'
    )
    server.submit(command="true", held=True)
    yield server
    server.remove()


@pytest.fixture(autouse=True)
def nothing_is_stored(server: RunningServer) -> Iterator[None]:
    before = server.jobs()
    yield
    assert server.jobs() == before
    assert "Traceback" not in server.log


def assert_refused(answer: Answer, *statuses: int) -> dict[str, Any]:
    """One of the statuses, in the fixed shape, with a next step, and not much longer than what is to be said."""
    assert answer.status in statuses, (answer.status, answer.body[:500])
    assert set(answer.json) == {"error"}
    error = answer.error
    assert set(error) == {"code", "message", "hint", "fields"}
    assert error["message"].endswith((".", "…"))
    assert error["hint"]
    assert len(answer.body) < LONGEST_ECHO * 25
    assert all(len(name) + len(text) < LONGEST_ECHO for name, text in error["fields"].items())
    return error


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"command": "true"',
        b'{"command": "true"} trailing',
        b"\xff\xfe{}",
        b'{"command": "\xff"}',
        b"null",
        b"[]",
        b'"true"',
        b"17",
        b"[" * 200_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        OBJECT + b'"cpus": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda raw: raw[:12].decode("latin-1"),
)
def test_a_body_that_is_no_json_object_is_a_bad_request(server: RunningServer, raw: bytes) -> None:
    for path in ("/jobs", "/jobs/bulk", "/jobs/cancel", "/jobs/wait", "/users", "/tokens", "/nodes/node-1/drain"):
        error = assert_refused(server.ask("POST", path, raw=raw), 400)
        assert error["code"] == "bad_request"


def test_a_body_of_another_type_is_answered_with_the_type_to_use(server: RunningServer) -> None:
    for kind in ("application/x-www-form-urlencoded", "text/plain", "multipart/form-data"):
        answer = server.ask("POST", "/jobs", raw=b'{"command": "true"}', headers={"Content-Type": kind})
        assert "application/json" in assert_refused(answer, 400)["hint"]


def test_a_huge_body_is_refused_by_its_announced_length_before_it_is_sent(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", raw=b"{", headers={"Content-Length": str(2**40)})
    assert assert_refused(answer, 413)["code"] == "too_large"


def test_a_huge_body_that_does_not_say_its_length_is_refused(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", raw=(b" " * 65536 for _ in range(64)))
    assert assert_refused(answer, 413)["code"] == "too_large"


def test_a_body_that_is_just_too_long_gets_its_answer_though_the_client_sends_all_of_it(
    server: RunningServer,
) -> None:
    raw = json.dumps({"command": "true", "env": {"A": "x" * 2**21}}).encode()
    assert_refused(server.ask("POST", "/jobs", raw=raw), 413)


def test_lengths_that_contradict_each_other_are_not_believed(server: RunningServer) -> None:
    head = b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    for lengths in (
        b"Content-Length: 19\r\nContent-Length: 5\r\n",
        b"Content-Length: 19\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: -1\r\n",
        b"Content-Length: " + b"9" * 5000 + b"\r\n",
        b"Content-Length: 1_9\r\n",
    ):
        with server.raw_connection() as connection:
            connection.sendall(head + lengths + b'\r\n{"command": "true"}')
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(64)
            assert answer == b"" or answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 413"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cpus", 0),
        ("cpus", -1),
        ("cpus", 2**63),
        ("cpus", 2**64),
        ("cpus", 1.0),
        ("cpus", True),
        ("cpus", "1"),
        ("cpus", []),
        ("memory", 0),
        ("memory", -1),
        ("memory", 2**63),
        ("memory", "-1G"),
        ("memory", "1e9G"),
        ("memory", "NaN"),
        ("memory", "16 gazillion"),
        ("memory", "\u0661\u0666G"),
        ("memory", "9" * 100_000),
        ("memory", {}),
        ("gpus", -1),
        ("gpus", 10**30),
        ("gpus", False),
        ("time_limit", 0),
        ("time_limit", -5),
        ("time_limit", 2**63),
        ("time_limit", "-1h"),
        ("time_limit", "forever"),
        ("time_limit", "0x10"),
        ("time_limit", 100 * 86400),
        ("priority", 1001),
        ("priority", -(2**63)),
        ("max_retries", -1),
        ("max_retries", 2**31),
        ("held", "yes"),
        ("held", 1),
        ("grace_seconds", -0.1),
        ("grace_seconds", 3601),
        ("grace_seconds", "10"),
        ("grace_seconds", float("nan")),
        ("grace_seconds", float("inf")),
        ("array", ""),
        ("array", "5-1"),
        ("array", "1,1"),
        ("array", "0-9%0"),
        ("array", "-1"),
        ("array", 7),
        ("array", "0-10000"),
        ("command", 5),
        ("command", ""),
        ("command", []),
        ("command", [""]),
        ("command", ["true", 1]),
        ("command", {"a": 1}),
        ("command", None),
        ("script", ""),
        ("script", 5),
        ("env", []),
        ("env", {"A": 1}),
        ("env", {"A": None}),
        ("workdir", "relative"),
        ("workdir", "~/x"),
        ("workdir", ""),
        ("workdir", "/" + "x" * 4096),
        ("name", 7),
        ("nonsense", 1),
        ("unix_user", "root"),
        ("user", "root"),
        ("id", 1),
        ("state", "completed"),
        ("__class__", {}),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_a_wrong_field_is_named(server: RunningServer, field: str, value: object) -> None:
    error = assert_refused(server.ask("POST", "/jobs", {"command": "true", field: value}), 422)
    assert any(name.split(".")[0] == field for name in error["fields"]) or field == "command"


def test_a_number_beyond_all_floats_is_not_finite(server: RunningServer) -> None:
    assert_refused(server.ask("POST", "/jobs", raw=OBJECT + b'"grace_seconds": 1e400}'), 422)
    assert_refused(server.ask("POST", "/jobs", raw=OBJECT + b'"cpus": 1e400}'), 422)
    assert_refused(server.ask("POST", "/jobs", raw=OBJECT + b'"cpus": -Infinity}'), 422)


def test_more_than_any_node_has_is_refused_with_what_there_is(server: RunningServer) -> None:
    error = assert_refused(server.ask("POST", "/jobs", {"command": "true", "gpus": 9}), 422)
    assert error["code"] == "impossible"
    assert "8 A100" in error["hint"]


def test_an_array_of_a_billion_is_refused_before_it_is_made(server: RunningServer) -> None:
    for array in ("0-999999999", "0 - 999999999", "0-9,10-999999999%5"):
        assert_refused(server.ask("POST", "/jobs", {"command": "true", "array": array}), 422)


def test_arrays_of_arrays_and_arrays_of_large_scripts_are_refused_before_they_fill_the_memory(
    server: RunningServer,
) -> None:
    many = {"jobs": [{"command": "true", "array": "0-9999"}] * 10_000}
    error = assert_refused(server.ask("POST", "/jobs/bulk", many), 422)
    assert "100000" in error["message"]
    for large in (
        {"script": "x" * 500_000},
        {"command": ["true", "x" * 100_000]},
        {"command": "true", "env": {"A": "x" * 99_999}},
    ):
        error = assert_refused(server.ask("POST", "/jobs", {**large, "array": "0-9999"}), 413)
        assert "file" in error["hint"]


def test_no_text_makes_a_regular_expression_run_for_long(server: RunningServer) -> None:
    """One that took the square of these lengths would answer after minutes, and so too late."""
    for field, value in (
        ("time_limit", "1s" + "1" * 100_000),
        ("time_limit", "1" + " " * 100_000 + "x"),
        ("memory", "1" + " " * 100_000 + "x"),
        ("array", "1," * 100_000 + "x"),
    ):
        assert_refused(server.ask("POST", "/jobs", {"command": "true", field: value}), 422)


LINES = [
    "a\nb",
    "a\rb",
    "a\0b",
    "\x1b[31mred",
    "\u202egnp.exe",
    "a\u200bb",
    "a\u2028b",
    "\ufeffa",
    " ",
    "",
    "x" * 129,
]


@pytest.mark.parametrize("text", LINES, ids=ascii)
def test_a_name_is_one_line_of_visible_text(server: RunningServer, text: str) -> None:
    for field in ("name", "project", "gpu_type"):
        error = assert_refused(server.ask("POST", "/jobs", {"command": "true", field: text}), 422)
        assert field in error["fields"]
    assert_refused(server.ask("POST", "/nodes/node-1/drain", {"reason": text}), 422, 404)
    assert_refused(server.ask("POST", "/tokens", {"name": text}), 422)
    assert_refused(server.ask("POST", "/users", {"name": text}), 422)
    assert_refused(server.ask("POST", "/departments", {"name": text}), 422)


LONE = b"\\ud800"


@pytest.mark.parametrize(
    "raw",
    [
        b'{"command": "' + LONE + b'"}',
        b'{"command": ["' + LONE + b'"]}',
        b'{"script": "' + LONE + b'"}',
        *(
            OBJECT + b'"%s": "%s"}' % (field, LONE)
            for field in (b"name", b"project", b"gpu_type", b"workdir", LONE)
        ),
        *(OBJECT + b'"%s": "%s"}' % (field, LONE) for field in (b"memory", b"time_limit", b"array")),
        OBJECT + b'"env": {"' + LONE + b'": "1"}}',
        OBJECT + b'"env": {"A": "' + LONE + b'"}}',
        OBJECT + b'"workdir": "/' + LONE + b'"}',
    ],
)
def test_half_a_character_is_refused_in_every_string(server: RunningServer, raw: bytes) -> None:
    assert_refused(server.ask("POST", "/jobs", raw=raw), 422)


def test_half_a_character_is_refused_about_people_too(server: RunningServer) -> None:
    raw = b'{"name": "' + LONE + b'", "department": "' + LONE + b'"}'
    for path in ("/users", "/projects"):
        assert_refused(server.ask("POST", path, raw=raw), 422)
    raw = b'{"name": "' + LONE + b'", "password": "' + LONE + b'"}'
    assert_refused(server.ask("POST", "/login", raw=raw), 422, 401)


def test_half_a_character_in_a_document_of_others_is_refused(server: RunningServer) -> None:
    raw = b'{"' + LONE + b'": "x"}'
    assert_refused(server.ask("POST", "/schedules/chronos", raw=raw), 422)
    for body in (b'{"sweep": ' + raw + b"}", b'{"workflow": ' + raw + b"}"):
        path = "/sweeps" if b"sweep" in body else "/workflows"
        assert_refused(server.ask("POST", path, raw=body), 422)


ENVIRONMENT_OF_THE_QUEUE = ["HELIOSTAT_MARK", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"]


@pytest.mark.parametrize(
    "name",
    [
        *ENVIRONMENT_OF_THE_QUEUE,
        "",
        "A B",
        "1A",
        "A=B",
        "A\nB",
        "A;B",
        "$(id)",
        "A-B",
        "\u00c4",
        "A\0",
        "A" * 300,
        "IFS",
        "UID",
        "PPID",
    ],
    ids=ascii,
)
def test_an_environment_variable_has_a_plain_name_and_is_not_ours(server: RunningServer, name: str) -> None:
    error = assert_refused(server.ask("POST", "/jobs", {"command": "true", "env": {name: "1"}}), 422)
    assert any(field.startswith("env") for field in error["fields"])


@pytest.mark.parametrize(
    "body",
    [
        {"command": ["true", "a\0b"]},
        {"command": "a\0b"},
        {"script": "a\0b"},
        {"command": "true", "workdir": "/a\0b"},
        {"command": "true", "env": {"A": "a\0b"}},
        {"command": "x" * 131_072},
        {"command": ["true", "\u00e4" * 70_000]},
        {"command": ["true"] + ["x" * 1000] * 2000},
        {"command": "true", "env": {"A": "\u00e4" * 70_000}},
        {"command": "true", "env": {f"A{n}": "x" * 100_000 for n in range(9)}},
        {"script": "true", "command": "shell line"},
        {},
    ],
    ids=lambda body: repr(body)[:40],
)
def test_what_no_process_could_be_started_with_is_refused(server: RunningServer, body: dict[str, Any]) -> None:
    assert_refused(server.ask("POST", "/jobs", body), 422, 413)


def test_of_a_bulk_with_one_wrong_job_none_is_stored_and_the_wrong_one_is_named(server: RunningServer) -> None:
    jobs = [{"command": "true"}] * 3 + [{"command": "true", "cpus": -1}]
    error = assert_refused(server.ask("POST", "/jobs/bulk", {"jobs": jobs}), 422)
    assert "jobs.3.cpus" in error["fields"]
    jobs[2:] = [{"name": "train", "command": "true", "gpus": 99}, {"command": "true", "gpus": 98}]
    error = assert_refused(server.ask("POST", "/jobs/bulk", {"jobs": jobs}), 422)
    assert [line.split(": ")[0] for line in error["message"].splitlines()] == ["job train", "job 4 of 4"]
    assert_refused(server.ask("POST", "/jobs/bulk", {"jobs": []}), 422)
    assert_refused(server.ask("POST", "/jobs/bulk", {"jobs": [{"command": "true"}] * 10_001}), 422)


def test_what_comes_back_of_a_wrong_field_is_short(server: RunningServer) -> None:
    answer = server.ask("POST", "/jobs", {"command": "true", "k" * 300_000: 1, "name": "n" * 300_000})
    assert_refused(answer, 422)
    assert len(answer.body) < 3000


PATHS = ["..", ".", "%2e%2e", "..%2f..%2fetc%2fpasswd", "%00", "%0d%0aX-Evil:%20y", "%ff", "-1", "0", "1.5", "1e3"]
PATHS += ["0x10", "%D9%A1", "9" * 30, "9" * 5000, "1;2", "1'%20OR%20'1'='1", "*", "%252e%252e%252f", "%E2%80%AE"]


@pytest.mark.parametrize("trick", PATHS, ids=lambda text: text[:24])
def test_a_path_trick_finds_nothing(server: RunningServer, trick: str) -> None:
    for method, path in (
        ("GET", "/jobs/{}"),
        ("GET", "/jobs/{}/logs"),
        ("GET", "/jobs/{}/logs/follow"),
        ("POST", "/jobs/{}/cancel"),
        ("POST", "/jobs/{}/requeue"),
        ("GET", "/nodes/{}"),
        ("POST", "/nodes/{}/resume"),
        ("GET", "/users/{}"),
        ("GET", "/projects/{}"),
        ("DELETE", "/tokens/{}"),
    ):
        answer = server.ask(method, path.format(trick))
        assert_refused(answer, 404, 405, 422)
        assert "X-Evil" not in answer.headers


@pytest.mark.parametrize(
    "query",
    [
        "cursor=abc",
        "cursor=-1",
        "cursor=%D9%A1",
        "cursor=" + "9" * 30,
        "cursor=" + "9" * 5000,
        "cursor=1%20OR%201",
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=1e3",
        "limit=" + "9" * 5000,
        "state=nonsense",
        "array_id=0",
        "array_id=" + str(2**63),
        "submitted_after=yesterday",
        "submitted_before=%00",
        "name=" + "x" * 129,
        "name=%00",
        "user=%00",
        "unfinished=maybe",
    ],
    ids=lambda query: query[:24],
)
def test_a_wrong_query_is_named(server: RunningServer, query: str) -> None:
    error = assert_refused(server.ask("GET", f"/jobs?{query}"), 422)
    assert [name.partition(".")[0] for name in error["fields"]] == [query.partition("=")[0]]


@pytest.mark.parametrize("when", ["0001-01-01T00:00:00", "9999-12-31T23:59:59", "0001-01-01T00:00:00%2B23:59"])
def test_any_time_there_is_can_be_asked_for(server: RunningServer, when: str) -> None:
    assert server.ask("GET", f"/jobs?submitted_after={when}&submitted_before={when}").status == 200


def test_a_filter_takes_wildcards_and_quotes_as_they_are(server: RunningServer) -> None:
    for text in ("%25", "_", "'", '"', "%27%20OR%201=1--", "%5C"):
        for field in ("name", "user", "project", "node"):
            answer = server.ask("GET", f"/jobs?{field}={text}")
            assert (answer.status, answer.json["items"]) == (200, [])


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_an_idempotency_key_has_1_to_200_characters(server: RunningServer, key: str) -> None:
    answer = server.ask("POST", "/jobs", {"command": "true"}, headers={"Idempotency-Key": key})
    assert_refused(answer, 422)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/jobs/cancel", {"job_ids": [0]}),
        ("/jobs/cancel", {"job_ids": ["1"]}),
        ("/jobs/cancel", {"job_ids": [True]}),
        ("/jobs/cancel", {"job_ids": [2**63]}),
        ("/jobs/cancel", {"job_ids": 1}),
        ("/jobs/cancel", {"array_id": -1}),
        ("/jobs/wait", {"job_ids": [1], "timeout_seconds": -1}),
        ("/jobs/wait", {"job_ids": [1], "timeout_seconds": float("nan")}),
        ("/jobs/wait", {"job_ids": [1], "timeout_seconds": 10**400}),
        ("/jobs/wait", {"job_ids": [1], "timeout_seconds": True}),
        ("/jobs/wait", {}),
        ("/tokens", {"name": "a", "days": 2**63}),
        ("/tokens", {"name": "a", "days": 1.5}),
        ("/tokens", {"name": "a", "user": "root"}),
        ("/users", {"name": "zoe", "role": "king"}),
        ("/users", {"name": "zoe", "projects": ["nowhere"]}),
        ("/users", {"name": "zoe", "unix_user": "root"}),
        ("/users", {"name": "zoe", "password": "short"}),
        ("/projects", {"name": "p", "department": "nowhere"}),
        ("/projects", {"name": "../p", "department": "default"}),
        ("/login", {"name": "root"}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_every_other_body_is_checked_as_well(server: RunningServer, path: str, body: dict[str, Any]) -> None:
    assert_refused(server.ask("POST", path, body), 422, 400)


def test_a_job_that_is_not_there_is_not_found_everywhere(server: RunningServer) -> None:
    missing = 10**9
    for method, path in (
        ("GET", ""),
        ("GET", "/logs"),
        ("GET", "/logs/follow"),
        ("POST", "/cancel"),
        ("POST", "/hold"),
        ("POST", "/release"),
        ("POST", "/requeue"),
    ):
        assert_refused(server.ask(method, f"/jobs/{missing}{path}"), 404)
    assert_refused(server.ask("GET", f"/events?job_id={missing}"), 404)
    assert_refused(server.ask("GET", f"/events/stream?job_id={missing}"), 404)
    assert_refused(server.ask("POST", "/jobs/wait", {"job_ids": [missing]}), 404)
    assert_refused(server.ask("POST", "/jobs/cancel", {"job_ids": [missing]}), 404)
    assert_refused(server.ask("POST", "/jobs/cancel", {"array_id": missing}), 404)


def test_a_wrong_method_says_where_to_look(server: RunningServer) -> None:
    for method, path in (("PATCH", "/jobs"), ("DELETE", "/jobs/1"), ("PUT", "/nodes"), ("GET", "/jobs/bulk")):
        assert_refused(server.ask(method, path), 405, 422)
    allowed = server.ask("DELETE", "/users/root").headers["allow"]
    assert allowed == "GET, PATCH"


def test_logs_of_an_engine_that_keeps_none_are_a_conflict_also_when_followed(server: RunningServer) -> None:
    job_id = server.jobs()
    for path in (f"/jobs/{job_id}/logs", f"/jobs/{job_id}/logs/follow"):
        answer = server.ask("GET", path)
        assert (answer.status, answer.error["code"]) == (409, "conflict")
