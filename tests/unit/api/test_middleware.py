import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heliostat.api.middleware import BodyLimitMiddleware, RequestRecordMiddleware
from heliostat.errors import TooLarge
from heliostat.metrics import Histogram


async def reads_all(scope: Any, receive: Any, send: Any) -> None:
    """Does what FastAPI does: whatever goes wrong while reading is a 400."""
    status, size = 200, 0
    try:
        while True:
            message = await receive()
            size += len(message.get("body", b""))
            if not message.get("more_body"):
                break
    except Exception:  # noqa: BLE001 - as FastAPI does
        status = 400
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


async def tell(request: Request, error: TooLarge, status: int) -> Response:
    return JSONResponse(error.as_dict(), status)


def answer(chunks: list[bytes], announced: bytes | None = None) -> tuple[int, bytes, int]:
    """Status, body, and how often an answer was begun."""
    headers = [] if announced is None else [(b"content-length", announced)]
    incoming = [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
    incoming.append({"type": "http.request", "body": b"", "more_body": False})
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return incoming.pop(0)

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    limit = BodyLimitMiddleware(reads_all, 10, tell, lambda request: None)
    asyncio.run(limit({"type": "http", "method": "POST", "path": "/", "headers": headers}, receive, send))  # type: ignore[arg-type]
    starts = [message for message in sent if message["type"] == "http.response.start"]
    body = b"".join(message.get("body", b"") for message in sent)
    return starts[0]["status"], body, len(starts)


@pytest.mark.parametrize("chunks", [[], [b"x" * 10], [b"x"] * 10])
def test_a_body_up_to_the_limit_passes(chunks: list[bytes]) -> None:
    assert answer(chunks) == (200, str(sum(map(len, chunks))).encode(), 1)


@pytest.mark.parametrize(
    ("chunks", "announced"), [([b"x" * 11], None), ([b"x"] * 11, None), ([], b"11"), ([b"x" * 11], b"5")]
)
def test_a_longer_one_is_too_large_and_answered_once(chunks: list[bytes], announced: bytes | None) -> None:
    status, body, starts = answer(chunks, announced)
    assert (status, starts) == (413, 1)
    assert json.loads(body)["error"]["code"] == "too_large"


def test_a_user_sends_one_large_body_at_a_time() -> None:
    """A parsed body needs many times its size."""
    statuses: list[tuple[str, int]] = []
    refused = asyncio.Event()

    async def send_large(limit: BodyLimitMiddleware, user: str, *, waits: bool) -> None:
        incoming = [b"x" * 5 * 2**20, b""]

        async def receive() -> dict[str, Any]:
            if waits and len(incoming) == 1:
                await refused.wait()
            return {"type": "http.request", "body": incoming.pop(0), "more_body": bool(incoming)}

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                statuses.append((user, message["status"]))

        headers = [(b"authorization", b"Bearer x")]
        scope = {"type": "http", "method": "POST", "path": "/bulk", "headers": headers, "user": user}
        await limit(scope, receive, send)  # type: ignore[arg-type]

    async def send_all() -> None:
        limit = BodyLimitMiddleware(reads_all, 10**9, tell, lambda request: request.scope["user"], ["/bulk"])
        first = asyncio.create_task(send_large(limit, "ada", waits=True))
        await asyncio.sleep(0)
        await send_large(limit, "ada", waits=False)
        await send_large(limit, "ben", waits=False)
        refused.set()
        await first
        await send_large(limit, "ada", waits=False)

    asyncio.run(send_all())
    assert statuses == [("ada", 429), ("ben", 200), ("ada", 200), ("ada", 200)]


def recorded(app: Any, scope: dict[str, Any]) -> tuple[list[str], list[dict[str, Any]]]:
    """The series of a request, and what was sent."""
    seconds, sent = Histogram((1,)), list[dict[str, Any]]()

    async def send(message: Any) -> None:
        sent.append(message)

    middleware = RequestRecordMiddleware(app, lambda: "paused", seconds, ("/metrics",))
    scope = {"type": "http", "method": "GET", "path": "/", "headers": [], **scope}
    try:
        asyncio.run(middleware(scope, None, send))  # type: ignore[arg-type]
    except RuntimeError as error:
        sent.append({"raised": error, "request_id": scope["state"]["request_id"]})
    names = [name for name, _ in seconds.samples(("method", "route", "class")) if name.startswith("_count")]
    return names, sent


async def answers(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": []})


async def breaks(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("oops")


def test_a_response_has_an_id_and_the_notice() -> None:
    names, sent = recorded(answers, {})
    assert names == ['_count{method="GET",route="other",class="2xx"}']
    headers = dict(sent[0]["headers"])
    assert len(headers[b"x-request-id"]) == 32
    assert headers[b"heliostat-notice"] == b"paused"


def test_a_request_that_breaks_is_counted_and_has_an_id() -> None:
    names, sent = recorded(breaks, {"headers": [(b"x-request-id", b"mine")]})
    assert names == ['_count{method="GET",route="other",class="5xx"}']
    assert sent[0]["request_id"] == "mine"


def test_two_ids_are_none() -> None:
    _, sent = recorded(answers, {"headers": [(b"x-request-id", b"one"), (b"x-request-id", b"two")]})
    assert dict(sent[0]["headers"])[b"x-request-id"] not in (b"one", b"two", b"one, two")


def test_a_made_up_method_is_no_label() -> None:
    names, _ = recorded(answers, {"method": "X" * 1000})
    assert names == ['_count{method="other",route="other",class="2xx"}']


def test_the_metrics_address_has_metrics_only() -> None:
    state = {"is_metrics_address": True}
    assert recorded(answers, {"path": "/metrics", "state": {**state}})[1][0]["status"] == 204
    assert recorded(answers, {"path": "/jobs", "state": {**state}})[1][0]["status"] == 404
