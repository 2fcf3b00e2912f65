"""Bodies are counted before they are validated, and read in the thread of their endpoint."""

import asyncio
import json
import threading
from typing import Annotated, Any

import pytest
from fastapi import FastAPI

from heliostat.api.job_schemas import BulkSubmitBody, JobBody
from heliostat.api.request_bodies import BodyRouter, Entries, JsonObject, RequestBody
from heliostat.api.validation_errors import MAX_PROBLEMS, read_model
from heliostat.errors import BadRequest, Invalid

validated: list[int] = []


class Entry(RequestBody):
    number: int

    def model_post_init(self, context: Any, /) -> None:
        validated.append(self.number)


class Body(RequestBody):
    entries: Annotated[list[Entry], Entries(30, minimum=1)]
    named: Annotated[dict[str, Entry], Entries(2)] = {}  # noqa: RUF012 - pydantic copies it
    free: JsonObject = {}  # noqa: RUF012


def problems(**fields: object) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        read_model(Body, {"entries": [{"number": 1}]} | fields)
    return caught.value.fields


def test_what_has_too_many_entries_is_refused_before_any_is_validated() -> None:
    validated.clear()
    assert problems(entries=[{"number": 1}] * 31) == {"entries": "must have at most 30 items"}
    assert problems(entries=[]) == {"entries": "must not be empty"}
    assert validated == []
    assert problems(named={name: {"number": 1} for name in "abc"}) == {"named": "must have at most 2 items"}


def test_errors_of_a_list_have_their_place_and_not_all_are_collected() -> None:
    validated.clear()
    assert list(problems(entries=[{"number": 1}, {"number": "x"}, {}])) == ["entries.1.number", "entries.2.number"]
    found = problems(entries=[*({"number": "x"} for _ in range(25)), {"number": 7}])
    assert list(found) == [f"entries.{index}.number" for index in range(MAX_PROBLEMS)]
    assert 7 not in validated


def test_unknown_fields_are_counted_first() -> None:
    with pytest.raises(Invalid, match="an object can have at most 1000 fields"):
        read_model(JobBody, {str(index): 1 for index in range(1001)})


def test_a_bulk_names_the_first_wrong_jobs() -> None:
    with pytest.raises(Invalid) as caught:
        read_model(BulkSubmitBody, {"jobs": [{"command": "true"}, *({} for _ in range(9_000))]})
    assert set(caught.value.fields) == {f"jobs.{index}" for index in range(1, MAX_PROBLEMS + 1)}


def test_free_content_is_not_nested_too_deeply() -> None:
    nested: dict[str, Any] = {}
    for _ in range(49):
        nested = {"a": nested}
    read_model(Body, {"entries": [{"number": 1}], "free": nested})
    assert problems(free={"a": [nested]}) == {"free": "is nested too deeply"}


router = BodyRouter()


@router.post("/sync")
def sync_endpoint(body: Entry) -> dict[str, Any]:
    return {"number": body.number, "thread": threading.get_ident()}


@router.post("/async")
async def async_endpoint(body: Entry) -> dict[str, Any]:
    return {"number": body.number, "thread": threading.get_ident()}


async def post(app: FastAPI, path: str, content: bytes) -> tuple[int, bytes]:
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, receive, send)  # type: ignore[arg-type]
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent)


@pytest.mark.parametrize("path", ["/sync", "/async"])
def test_a_body_is_validated_outside_the_event_loop_and_described_as_its_model(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = FastAPI()
    app.include_router(router)
    threads = []
    monkeypatch.setattr(Entry, "model_post_init", lambda *_: threads.append(threading.get_ident()))
    status, content = asyncio.run(post(app, path, b'{"number": 5}'))
    assert (status, json.loads(content)["number"]) == (200, 5)
    assert threads != [threading.get_ident()]
    request_body = app.openapi()["paths"][path]["post"]["requestBody"]
    assert request_body["content"]["application/json"]["schema"]["$ref"] == "#/components/schemas/Entry"


@pytest.mark.parametrize("content", [b"[" * 200_000, b"{", b"9" * 5000, b"[]", b"\xff"])
def test_what_is_no_json_object_is_a_bad_request(content: bytes) -> None:
    app = FastAPI()
    app.include_router(router)
    with pytest.raises(BadRequest):
        asyncio.run(post(app, "/sync", content))
