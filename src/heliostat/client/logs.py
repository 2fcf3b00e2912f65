"""Reading what jobs print, and going on where a broken connection stopped."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heliostat.client.shapes import Event, LogChunk, LogEnd, LogPart
from heliostat.client.sse import ServerEvent, read_events
from heliostat.client.transport import Query, Request, Transport
from heliostat.errors import ServerUnreachable

PATIENCE_SECONDS = 60.0
"""How long a follower waits for a server that restarts."""

STREAMS = ("stdout", "stderr")
_PART_BYTES = 1 << 20


@dataclass(frozen=True)
class Log:
    """One stream of one attempt (None: the newest)."""

    transport: Transport
    job_id: int
    stream: str
    attempt: int | None = None

    def part(self, offset: int = 0, limit: int | None = None) -> LogPart:
        """A negative offset counts from the end."""
        query = [("stream", self.stream), ("offset", offset), ("limit", limit), ("attempt", self.attempt)]
        path = f"/jobs/{self.job_id}/logs"
        answer = self.transport.send(Request("GET", path, query=query, headers={"Accept": "*/*"}))
        start = int(answer.headers.get("X-Log-Offset") or max(offset, 0))
        size = int(answer.headers.get("X-Log-Size") or start + len(answer.body))
        return LogPart(answer.body, start, size)

    def read(self, offset: int = 0, up_to: int | None = None) -> Iterator[bytes]:
        """Piece by piece, up to the end as it was when we began: a log may grow faster than it is read."""
        part = self.part(offset, _PART_BYTES if up_to is None else min(_PART_BYTES, up_to - offset))
        end = part.size if up_to is None else min(part.size, up_to)
        while part.data:
            yield part.data
            at = part.offset + len(part.data)
            if at >= end:
                return
            part = self.part(at, min(_PART_BYTES, end - at))


def read_together(
    transport: Transport, job_id: int, starts: Mapping[str, int], attempt: int | None
) -> Iterator[tuple[str, bytes]]:
    """Both streams in the order they were written, as far as the server knows it: (stream, bytes)."""
    query: Query = [("attempt", attempt)]
    order = transport.call("GET", f"/jobs/{job_id}/logs/order", query=query)["items"]
    at = dict(starts)
    for mark in order:
        stream, end = mark["stream"], mark["end"]
        if end > at.get(stream, end):
            yield from ((stream, part) for part in Log(transport, job_id, stream, attempt).read(at[stream], end))
            at[stream] = end
    for stream, start in at.items():
        yield from ((stream, part) for part in Log(transport, job_id, stream, attempt).read(start))


class Follower:
    """The log of one job as it is written. `end` is set once the job is over."""

    def __init__(self, transport: Transport, job_id: int, stream: str, attempt: int | None) -> None:
        self.end: LogEnd | None = None
        self._transport = transport
        self._path = f"/jobs/{job_id}/logs/follow"
        self._fixed: list[tuple[str, object]] = [("stream", stream), ("attempt", attempt)]
        self._next = {"stdout": 0, "stderr": 0}
        self._attempt: int | None = None  # the one these belong to

    def start_at(self, offset: int) -> "Follower":
        return self.start_at_each(dict.fromkeys(self._next, offset))

    def start_at_each(self, offsets: Mapping[str, int]) -> "Follower":
        self._next.update(offsets)
        return self

    def __iter__(self) -> Iterator[LogChunk]:
        for event in resumed(self._transport, self._path, self._query):
            if event.event == "end":
                said = event.json()
                self.end = LogEnd(said["state"], said.get("exit_code"))
                return
            if event.event == "chunk":
                yield self._chunk(event.json())

    def _query(self) -> Query:
        offsets = [(f"{stream}_offset", offset) for stream, offset in self._next.items()]
        return [*self._fixed, *offsets, ("from_attempt", self._attempt)]

    def _chunk(self, said: dict[str, Any]) -> LogChunk:
        chunk = LogChunk(said["stream"], said["offset"], said["text"])
        length = len(chunk.text.encode("utf-8", "surrogateescape"))
        if said.get("attempt", self._attempt) != self._attempt:
            if self._attempt is not None:
                self._next = dict.fromkeys(self._next, 0)
            self._attempt = said["attempt"]
        # Text that was not UTF-8 is longer or shorter than its bytes, so the server says where it ends.
        self._next[chunk.stream] = said.get("next_offset", chunk.offset + length)
        return chunk


def past_events(transport: Transport, after: int | None, job_id: int | None) -> Iterator[Event]:
    """Job events that have happened, oldest first."""
    cursor: object = after
    while True:
        query = [("after", cursor), ("job_id", job_id), ("limit", 500)]
        page = transport.call("GET", "/events", query=query)
        yield from page["items"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def follow_events(transport: Transport, after: int | None, job_id: int | None) -> Iterator[Event]:
    """Job events as they happen, without end."""
    last = after

    def query() -> Query:
        return [("after", last), ("job_id", job_id)]

    for event in resumed(transport, "/events/stream", query):
        if event.event == "job":
            told: Event = event.json()
            last = told["id"]
            yield told


def resumed(transport: Transport, path: str, query: Callable[[], Query]) -> Iterator[ServerEvent]:
    """Events of a stream; after a break it asks again from where it was, while the server restarts."""
    heard_at: float | None = None
    while True:
        try:
            with transport.stream(path, query()) as lines:
                heard_at = time.monotonic()
                for event in read_events(lines):
                    yield event
                    heard_at = time.monotonic()
        except ServerUnreachable:
            if heard_at is None or time.monotonic() - heard_at > PATIENCE_SECONDS:
                raise
        time.sleep(0.2)
