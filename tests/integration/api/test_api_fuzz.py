"""Every endpoint of the API's own description, asked with what it wants and with what it does not."""

import http.client
import json
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from integration.running_server import RunningServer, wait_for
from support.hypothesis_examples import example_count

Schema = dict[str, Any]
HOSTILE_TEXT = ["", "\0", "\n", "..", "../x", "%", "'", '"', "$(id)", "`id`", "\u202e", "\u200b", "\ud800", "me"]
HOSTILE_TEXT += ["x" * 300, "9" * 5000, "1e400", "-1", "NaN", "root", "0-999999999", "1s" + "1" * 5000, "null"]
HOSTILE_NUMBERS = [-1, 0, 2**31, 2**53, 2**53 + 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308]
HOSTILE_NUMBERS += [float("nan"), float("inf")]

hostile_text = st.sampled_from(HOSTILE_TEXT) | st.text(max_size=20)
scalars = st.none() | st.booleans() | st.sampled_from(HOSTILE_NUMBERS) | hostile_text
hostile = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(hostile_text, inner, max_size=3),
    max_leaves=5,
)


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    """On the simulated engine: nothing of what is made up here ever runs."""
    server = RunningServer(
        'server.engine = "simulated"\nserver.simulated_nodes = "2x4xA100"\nserver.simulated_speed = 1000.0\n'
    )
    server.ask("POST", "/jobs/bulk", {"jobs": [{"command": "true"}] * 20})
    yield server
    server.remove()


@settings(
    max_examples=example_count(2000),
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(data=st.data())
def test_no_request_makes_the_server_fail_and_every_refusal_has_the_one_shape(
    server: RunningServer, data: st.DataObject
) -> None:
    described = _description(server)
    path, method, operation = data.draw(st.sampled_from(_operations(described)))
    target = data.draw(_target(path, operation, described))
    headers, body = data.draw(_request(operation, described))
    note(f"{method} {target} {headers} {body!r}")
    with server.raw_connection() as connection:
        asked = http.client.HTTPConnection("localhost")
        asked.sock = connection
        asked.request(method.upper(), target, body, headers)
        answer = asked.getresponse()
        assert answer.status < 500, (method, target, body)
        if answer.status < 400:
            return
        error = json.loads(answer.read())["error"]
        assert set(error) == {"code", "message", "hint", "fields"}
        assert error["hint"]


def test_after_all_that_it_still_works(server: RunningServer) -> None:
    for node in server.ask("GET", "/nodes").json["items"]:
        server.ask("POST", f"/nodes/{node['name']}/resume")
    job_id = server.submit(command="true", priority=1000)
    wait_for(lambda: server.show(job_id)["state"] == "completed", "a job to complete", lambda: server.show(job_id))
    assert "Traceback" not in server.log, server.log[server.log.index("Traceback") :][-1500:]


_described: dict[str, Schema] = {}


def _description(server: RunningServer) -> Schema:
    if server.url not in _described:
        _described[server.url] = server.ask("GET", "/openapi.json").json
    return _described[server.url]


def _operations(described: Schema) -> list[tuple[str, str, Schema]]:
    return [
        (path, method, operation)
        for path, methods in described["paths"].items()
        for method, operation in methods.items()
        if not path.endswith(("/login", "/doctor"))  # slow by intent, and tested elsewhere
    ]


@st.composite
def _target(draw: st.DrawFn, path: str, operation: Schema, described: Schema) -> str:
    query = []
    for parameter in operation.get("parameters", []):
        usual = _like(parameter["schema"], described, parameter["name"])
        value = draw(usual if draw(st.integers(0, 3)) else hostile_text)
        text = value if isinstance(value, str) else json.dumps(value)
        if parameter["in"] == "path":
            path = path.replace(
                f"{{{parameter['name']}}}", urllib.parse.quote(text, safe="", errors="replace") or "1"
            )
        elif parameter["in"] == "query" and draw(st.booleans()):
            query.append((parameter["name"], text))
    return path + ("?" + urllib.parse.urlencode(query, errors="replace") if query else "")


@st.composite
def _request(draw: st.DrawFn, operation: Schema, described: Schema) -> tuple[dict[str, str], bytes | None]:
    headers = {}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "header" and draw(st.booleans()):
            headers[parameter["name"]] = draw(
                st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=9)
            )
    if "requestBody" not in operation:
        return headers, None
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    body = draw(_like(schema, described) if draw(st.integers(0, 5)) else hostile)
    text = json.dumps(body)
    if not draw(st.integers(0, 12)):
        text = text[: draw(st.integers(0, len(text)))]
    return {**headers, "Content-Type": "application/json"}, text.encode()


def _like(schema: Schema, described: Schema, name: str = "") -> st.SearchStrategy[Any]:  # noqa: PLR0911
    """Values that mostly fit the schema."""
    if "$ref" in schema:
        return _like(described["components"]["schemas"][schema["$ref"].rpartition("/")[2]], described, name)
    if "anyOf" in schema:
        return st.one_of([_like(choice, described, name) for choice in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if name == "timeout_seconds":
        return st.just(0) | st.sampled_from([-1, "0", None, 1e999])
    match schema.get("type"):
        case "object":
            return _object_like(schema, described)
        case "array":
            return st.lists(_like(schema.get("items", {}), described, name), max_size=3)
        case "integer" | "number":
            least = schema.get("minimum", 0)
            return st.integers(int(least), int(min(schema.get("maximum", 40), least + 40)))
        case "boolean":
            return st.booleans()
        case "null":
            return st.none()
    usual = ["a", "root", "default", "node-1", "node1", "/tmp", "1G", "10m", "0-3%2", "correct horse battery", "1"]
    return st.sampled_from(usual) | hostile_text


@st.composite
def _object_like(draw: st.DrawFn, schema: Schema, described: Schema) -> dict[str, Any]:
    made = {}
    for name, part in schema.get("properties", {}).items():
        if name in schema.get("required", ()) or draw(st.integers(0, 2)) == 0:
            made[name] = draw(_like(part, described, name) if draw(st.integers(0, 7)) else hostile)
    if "additionalProperties" in schema and not schema.get("properties"):
        made |= draw(
            st.dictionaries(st.sampled_from(["A", "PATH", "LD_PRELOAD"]) | hostile_text, hostile_text, max_size=2)
        )
    elif not draw(st.integers(0, 9)):
        made[draw(hostile_text)] = draw(hostile)
    return made
