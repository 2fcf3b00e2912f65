import asyncio
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from heliostat.api.middleware import BodyLimitMiddleware
from heliostat.errors import TooLarge


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

    limit = BodyLimitMiddleware(reads_all, 10, tell, lambda request: False)
    asyncio.run(limit({"type": "http", "method": "POST", "headers": headers}, receive, send))  # type: ignore[arg-type]
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
