import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from heliostat.api.event_streams import EventStreamResponse
from heliostat.errors import TooManyRequests
from heliostat.services.context import ConcurrencyLimit


async def events() -> AsyncGenerator[str]:
    yield "data: 1\n\n"


async def send_to_end(response: EventStreamResponse) -> None:
    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Any) -> None: ...

    await response({"type": "http", "asgi": {"spec_version": "2.3"}}, receive, send)


def test_a_user_has_a_limited_number_of_streams_until_one_ends() -> None:
    limit = ConcurrencyLimit("stream", maximum=3, per_user=2)

    async def run() -> None:
        first = EventStreamResponse(events(), limit.acquire("ada"))
        second = EventStreamResponse(events(), limit.acquire("ada"))
        with pytest.raises(TooManyRequests, match="You have 2 open streams"):
            EventStreamResponse(events(), limit.acquire("ada"))
        third = EventStreamResponse(events(), limit.acquire("ben"))
        with pytest.raises(TooManyRequests, match="Too many concurrent requests"):
            EventStreamResponse(events(), limit.acquire("cai"))
        await send_to_end(first)
        await send_to_end(EventStreamResponse(events(), limit.acquire("ada")))
        await send_to_end(second)
        await send_to_end(third)

    asyncio.run(run())
