"""Reads a stream of server-sent events and reconnects when it breaks."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from heliostat.client.transport import Query, Transport
from heliostat.errors import ServerUnreachable

RECONNECT_TIMEOUT_SECONDS = 60.0
"""How long to try to reconnect to a server that restarts."""


class ServerSentEvent(NamedTuple):
    event: str
    data: str
    id: str | None = None

    def json(self) -> Any:
        """Its data, parsed."""
        return json.loads(self.data)


def stream_with_reconnect(
    transport: Transport, path: str, query: Callable[[], Query]
) -> Iterator[ServerSentEvent]:
    """Events of a stream; reconnects after an interruption and continues after the last event."""
    received_at: float | None = None
    while True:
        try:
            with transport.stream_lines(path, query()) as lines:
                received_at = time.monotonic()
                for event in parse_event_stream(lines):
                    yield event
                    received_at = time.monotonic()
        except ServerUnreachable:
            if received_at is None or time.monotonic() - received_at > RECONNECT_TIMEOUT_SECONDS:
                raise
        time.sleep(0.2)


def parse_event_stream(lines: Iterable[bytes]) -> Iterator[ServerSentEvent]:
    """Complete events only; an event that is cut off by a broken connection is dropped."""
    event, data, last_id = "message", list[str](), None
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerSentEvent(event, "\n".join(data), last_id)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
