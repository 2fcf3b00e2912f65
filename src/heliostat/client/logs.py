"""Client API for job logs; streams continue after a broken connection."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, SupportsInt

from heliostat.client.api_types import LogChunk, LogEnd, LogSlice, LogWait
from heliostat.client.event_stream import stream_with_reconnect
from heliostat.client.transport import ApiRequest, ApiResource, Query, Transport

LOG_STREAMS = ("stdout", "stderr")
_PART_BYTES = 1 << 20


class Logs(ApiResource):
    def text(self, job: SupportsInt, stream: str = "both", *, offset: int = 0, attempt: int | None = None) -> str:
        """The output so far, from that byte on; with "both", in the order in which it was written."""
        if stream != "both":
            return b"".join(self.read(job, stream, offset=offset, attempt=attempt)).decode("utf-8", "replace")
        starts = {
            name: self.read_slice(job, name, offset=offset, limit=0, attempt=attempt).offset
            for name in LOG_STREAMS
        }
        parts = [part for _, part in self.read_both(job, starts, attempt=attempt)]
        return b"".join(parts).decode("utf-8", "replace")

    def read(
        self, job: SupportsInt, stream: str = "stdout", *, offset: int = 0, attempt: int | None = None
    ) -> Iterator[bytes]:
        """The bytes of one stream in chunks. A negative offset counts from the end."""
        return _Stream(self._transport, int(job), stream, attempt).read(offset)

    def read_both(
        self, job: SupportsInt, starts: Mapping[str, int], *, attempt: int | None = None
    ) -> Iterator[tuple[str, bytes]]:
        """(stream, bytes) of both streams from these bytes on, in the recorded order."""
        order = self._items(f"/jobs/{int(job)}/logs/order", [("attempt", attempt)])
        at = dict(starts)
        for mark in order:
            stream, end = mark["stream"], mark["end"]
            if end > at.get(stream, end):
                log = _Stream(self._transport, int(job), stream, attempt)
                yield from ((stream, part) for part in log.read(at[stream], end))
                at[stream] = end
        for stream, start in at.items():
            log = _Stream(self._transport, int(job), stream, attempt)
            yield from ((stream, part) for part in log.read(start))

    def read_slice(
        self,
        job: SupportsInt,
        stream: str = "stdout",
        *,
        offset: int = 0,
        limit: int | None = None,
        attempt: int | None = None,
    ) -> LogSlice:
        """A part of one stream, and the size of the stream."""
        return _Stream(self._transport, int(job), stream, attempt).part(offset, limit)

    def follow(
        self,
        job: SupportsInt,
        stream: str = "both",
        *,
        offset: int = 0,
        attempt: int | None = None,
        on_wait: Callable[[LogWait], None] | None = None,
    ) -> "LogFollower":
        """LogChunks as they are printed, until the job ends; reconnects after a restart of the server.

        `on_wait` is called whenever the reason, position or forecast of a waiting job has changed.
        """
        follower = LogFollower(self._transport, int(job), stream, attempt).start_at_offset(offset)
        follower.on_wait = on_wait
        return follower


@dataclass(frozen=True)
class _Stream:
    """One stream of one attempt (None: the newest)."""

    transport: Transport
    job_id: int
    stream: str
    attempt: int | None = None

    def part(self, offset: int = 0, limit: int | None = None) -> LogSlice:
        """A negative offset counts from the end."""
        query = [("stream", self.stream), ("offset", offset), ("limit", limit), ("attempt", self.attempt)]
        path = f"/jobs/{self.job_id}/logs"
        response = self.transport.send(ApiRequest("GET", path, query=query, headers={"Accept": "*/*"}))
        start = int(response.headers.get("X-Log-Offset") or max(offset, 0))
        size = int(response.headers.get("X-Log-Size") or start + len(response.body))
        return LogSlice(response.body, start, size)

    def read(self, offset: int = 0, up_to: int | None = None) -> Iterator[bytes]:
        """In chunks, up to the size at the first request: a log may grow faster than it is read."""
        part = self.part(offset, _PART_BYTES if up_to is None else min(_PART_BYTES, up_to - offset))
        end = part.size if up_to is None else min(part.size, up_to)
        while data := part.data[: max(0, end - part.offset)]:  # removed output is skipped, maybe beyond the end
            yield data
            at = part.offset + len(data)
            if at >= end:
                return
            part = self.part(at, min(_PART_BYTES, end - at))


class LogFollower:
    """The log of one job as it is written. `end` is set when the job has ended."""

    def __init__(self, transport: Transport, job_id: int, stream: str, attempt: int | None) -> None:
        self.end: LogEnd | None = None
        self.on_wait: Callable[[LogWait], None] | None = None
        self._transport = transport
        self._path = f"/jobs/{job_id}/logs/follow"
        self._fixed: list[tuple[str, object]] = [("stream", stream), ("attempt", attempt)]
        self._next = {"stdout": 0, "stderr": 0}
        self._attempt: int | None = None  # the attempt of these offsets

    def start_at_offset(self, offset: int) -> "LogFollower":
        """Starts at this byte of one stream."""
        return self.start_at_offsets(dict.fromkeys(self._next, offset))

    def start_at_offsets(self, offsets: Mapping[str, int]) -> "LogFollower":
        """Starts at these bytes of both streams."""
        self._next.update(offsets)
        return self

    def __iter__(self) -> Iterator[LogChunk]:
        for event in stream_with_reconnect(self._transport, self._path, self._query):
            if event.event == "end":
                data = event.json()
                self.end = LogEnd(data["state"], data.get("exit_code"))
                return
            if event.event == "chunk":
                yield self._chunk(event.json())
            if event.event == "wait" and self.on_wait is not None:
                data = event.json()
                self.on_wait(LogWait(**{name: data[name] for name in LogWait._fields}))

    def _query(self) -> Query:
        offsets = [(f"{stream}_offset", offset) for stream, offset in self._next.items()]
        return [*self._fixed, *offsets, ("from_attempt", self._attempt)]

    def _chunk(self, data: dict[str, Any]) -> LogChunk:
        chunk = LogChunk(data["stream"], data["offset"], data["text"])
        length = len(chunk.text.encode("utf-8", "surrogateescape"))
        if data.get("attempt", self._attempt) != self._attempt:
            if self._attempt is not None:
                self._next = dict.fromkeys(self._next, 0)
            self._attempt = data["attempt"]
        # The length of text that was not UTF-8 differs from its bytes, so the server sends the next offset.
        self._next[chunk.stream] = data.get("next_offset", chunk.offset + length)
        return chunk
