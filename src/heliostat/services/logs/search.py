"""Finding words in what a job printed, however much that is."""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from heliostat.errors import invalid_field
from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context
from heliostat.services.logs.reading import STREAMS, LogRange, attempt_number, read_log
from heliostat.services.rights import inspectable_job

MOST_HITS = 100
LONGEST_TEXT = 200
_BLOCK_BYTES = 1 << 20
_SECONDS = 2.0
_SHOWN_BYTES = 400


@dataclass(frozen=True, slots=True)
class Hit:
    """A line with the text in it."""

    stream: str
    at: int  # the byte of its stream where the line begins
    data: bytes  # of a very long line the part around the text


@dataclass(frozen=True, slots=True)
class Found:
    hits: tuple[Hit, ...]
    searched_bytes: int
    total_bytes: int

    @property
    def is_whole(self) -> bool:
        return self.searched_bytes >= self.total_bytes


@dataclass(frozen=True, slots=True)
class SearchWish:
    text: str
    streams: tuple[str, ...] = STREAMS
    attempt: int | None = None


def find_in_log(context: Context, caller: Caller, job_id: JobId, wish: SearchWish) -> Found:
    """The first lines that hold the text; ASCII letters match in either case. Stops after a few seconds.

    Raises TooManyRequests while the caller, or many others, search already.
    """
    job = inspectable_job(context, caller, job_id)
    number = attempt_number(job, wish.attempt)
    if not 1 <= len(wish.text) <= LONGEST_TEXT:
        raise invalid_field("find", f"must have 1 to {LONGEST_TEXT} letters")
    with context.searches.of(caller.user.name):
        return _found(context, job, number, wish)


def _found(context: Context, job: Job, number: int, wish: SearchWish) -> Found:
    needle = wish.text.encode("utf-8", "replace").lower()
    deadline = time.monotonic() + _SECONDS
    hits: list[Hit] = []
    searched = total = 0
    for stream in wish.streams if number else ():
        total += read_log(context, job, LogRange(stream, 0, 0, number)).size
        for data, base in _blocks(context, job, number, stream):
            if len(hits) >= MOST_HITS or time.monotonic() > deadline:
                break
            hits += _hits(data, base, needle, stream)
            searched += len(data)
    is_cut = len(hits) > MOST_HITS
    return Found(tuple(hits[:MOST_HITS]), min(searched, total - 1) if is_cut else searched, total)


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


def _hits(data: bytes, base: int, needle: bytes, stream: str) -> Iterator[Hit]:
    """At most one of each line, and not many more than are shown."""
    plain, at, count = data.lower(), 0, 0
    while count <= MOST_HITS and (place := plain.find(needle, at)) >= 0:
        start = data.rfind(b"\n", 0, place) + 1
        end = data.find(b"\n", place)
        at = end = len(data) if end < 0 else end
        if end - start > _SHOWN_BYTES:
            first = max(start, place - _SHOWN_BYTES // 4)
            yield Hit(stream, base + start, data[first : min(end, first + _SHOWN_BYTES)])
        else:
            yield Hit(stream, base + start, data[start:end])
        count += 1
