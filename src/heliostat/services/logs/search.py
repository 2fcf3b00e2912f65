"""Log search: lines of a job's output that contain a text, within a limit of time."""

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
_TIME_LIMIT_SECONDS = 2.0
_SHOWN_BYTES = 400


@dataclass(frozen=True, slots=True)
class LogMatch:
    """A line that contains the text."""

    stream: str
    line_offset: int  # the byte of its stream where the line begins
    data: bytes  # for a very long line, the part around the text


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


def search_log(context: Context, caller: Caller, job_id: JobId, request: LogSearchRequest) -> LogSearchResult:
    """The first lines that contain the text; ASCII letters match in either case. Stops after a few seconds.

    Raises TooManyRequests while another search of the caller, or too many searches of others, are running.
    """
    job = require_inspectable_job(context, caller, job_id)
    number = resolve_attempt_number(job, request.attempt)
    if not 1 <= len(request.text) <= MAX_SEARCH_LENGTH:
        raise invalid_field("find", f"must have 1 to {MAX_SEARCH_LENGTH} characters")
    with context.search_limit.acquire(caller.user.name):
        return _search(context, job, number, request)


def _search(context: Context, job: Job, number: int, request: LogSearchRequest) -> LogSearchResult:
    needle = request.text.encode("utf-8", "replace").lower()
    deadline = time.monotonic() + _TIME_LIMIT_SECONDS
    matches: list[LogMatch] = []
    searched = total = 0
    for stream in request.streams if number else ():
        total += read_log(context, job, LogRange(stream, 0, 0, number)).size
        before = searched
        for data, base in _blocks(context, job, number, stream):
            if len(matches) >= MAX_MATCHES or time.monotonic() > deadline:
                break
            matches += _matches(data, base, needle, stream)
            searched = before + base + len(data)
    is_cut = len(matches) > MAX_MATCHES
    return LogSearchResult(tuple(matches[:MAX_MATCHES]), min(searched, total - 1) if is_cut else searched, total)


def _blocks(context: Context, job: Job, number: int, stream: str) -> Iterator[tuple[bytes, int]]:
    """Blocks of complete lines, with their offset. A line longer than a block is split."""
    at, buffer = 0, b""
    while (part := read_log(context, job, LogRange(stream, at, _BLOCK_BYTES, number))).data:
        if buffer and part.offset != at:
            yield buffer, at - len(buffer)
            buffer = b""
        at = part.offset + len(part.data)
        buffer += part.data
        end = buffer.rfind(b"\n") + 1
        if not end and len(buffer) < _BLOCK_BYTES:
            continue
        end = end or len(buffer)
        yield buffer[:end], at - len(buffer)
        buffer = buffer[end:]
    if buffer:
        yield buffer, at - len(buffer)


def _matches(data: bytes, base: int, needle: bytes, stream: str) -> Iterator[LogMatch]:
    """At most one match per line, and few more than MAX_MATCHES."""
    plain, at, count = data.lower(), 0, 0
    while count <= MAX_MATCHES and (position := plain.find(needle, at)) >= 0:
        start = data.rfind(b"\n", 0, position) + 1
        end = data.find(b"\n", position)
        at = end = len(data) if end < 0 else end
        if end - start > _SHOWN_BYTES:
            first = max(start, position - _SHOWN_BYTES // 4)
            yield LogMatch(stream, base + start, data[first : min(end, first + _SHOWN_BYTES)])
        else:
            yield LogMatch(stream, base + start, data[start:end])
        count += 1
