"""Finding words in what a job printed, however much that is."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from heliostat.errors import invalid_field
from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context
from heliostat.services.logs.reader import STREAMS, LogRange, read_log, resolve_attempt_number
from heliostat.services.permissions import require_inspectable_job

MAX_MATCHES = 100
MAX_SEARCH_LENGTH = 200
_BLOCK_BYTES = 1 << 20
_SECONDS = 2.0
_SHOWN_BYTES = 400


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A line with the text in it."""

    stream: str
    line_offset: int  # the byte of its stream where the line begins
    data: bytes  # of a very long line the part around the text


@dataclass(frozen=True, slots=True)
class LogSearchResult:
    matches: tuple[LogMatch, ...]
    searched_bytes: int
    total_bytes: int

    @property
    def is_complete(self) -> bool:
        return self.searched_bytes >= self.total_bytes


@dataclass(frozen=True, slots=True)
class LogSearchRequest:
    text: str
    streams: tuple[str, ...] = STREAMS
    attempt: int | None = None


def search_log(context: Context, caller: Caller, job_id: JobId, wish: LogSearchRequest) -> LogSearchResult:
    """The first lines that hold the text; ASCII letters match in either case. Stops after a few seconds.

    Raises TooManyRequests while the caller, or many others, search already.
    """
    job = require_inspectable_job(context, caller, job_id)
    number = resolve_attempt_number(job, wish.attempt)
    if not 1 <= len(wish.text) <= MAX_SEARCH_LENGTH:
        raise invalid_field("find", f"must have 1 to {MAX_SEARCH_LENGTH} letters")
    with context.search_limit.acquire(caller.user.name):
        return _found(context, job, number, wish)


def _found(context: Context, job: Job, number: int, wish: LogSearchRequest) -> LogSearchResult:
    needle = wish.text.encode("utf-8", "replace").lower()
    deadline = time.monotonic() + _SECONDS
    hits: list[LogMatch] = []
    searched = total = 0
    for stream in wish.streams if number else ():
        total += read_log(context, job, LogRange(stream, 0, 0, number)).size
        for data, base in _blocks(context, job, number, stream):
            if len(hits) >= MAX_MATCHES or time.monotonic() > deadline:
                break
            hits += _hits(data, base, needle, stream)
            searched += len(data)
    is_cut = len(hits) > MAX_MATCHES
    return LogSearchResult(tuple(hits[:MAX_MATCHES]), min(searched, total - 1) if is_cut else searched, total)


def _blocks(context: Context, job: Job, number: int, stream: str) -> Iterator[tuple[bytes, int]]:
    """Whole lines, and where they begin. What has no end after so much is taken as it is."""
    at, held = 0, b""
    while data := read_log(context, job, LogRange(stream, at, _BLOCK_BYTES, number)).data:
        at += len(data)
        held += data
        end = held.rfind(b"\n") + 1
        if not end and len(held) < _BLOCK_BYTES:
            continue
        end = end or len(held)
        yield held[:end], at - len(held)
        held = held[end:]
    if held:
        yield held, at - len(held)


def _hits(data: bytes, base: int, needle: bytes, stream: str) -> Iterator[LogMatch]:
    """At most one of each line, and not many more than are shown."""
    plain, at, count = data.lower(), 0, 0
    while count <= MAX_MATCHES and (place := plain.find(needle, at)) >= 0:
        start = data.rfind(b"\n", 0, place) + 1
        end = data.find(b"\n", place)
        at = end = len(data) if end < 0 else end
        if end - start > _SHOWN_BYTES:
            first = max(start, place - _SHOWN_BYTES // 4)
            yield LogMatch(stream, base + start, data[first : min(end, first + _SHOWN_BYTES)])
        else:
            yield LogMatch(stream, base + start, data[start:end])
        count += 1
