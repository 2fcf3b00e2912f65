"""Parts of what a job printed, line by line, both streams in the order they were written. Never all of much."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context, require_program_engine
from heliostat.services.logs.reader import STREAMS, LogRange, read_log, read_stream_order, resolve_attempt_number
from heliostat.services.permissions import require_inspectable_job

WINDOW_BYTES = 32 * 1024
_MOST_NEW_BYTES = 256 * 1024  # of what came since the last look; whoever is further behind begins anew at the end
_LONGEST_LINE = 16 * 1024


@dataclass(frozen=True, slots=True)
class LogWindowRequest:
    """Which part: what ends before a byte, what begins at one, or the end. Bytes count over all its streams."""

    streams: tuple[str, ...] = STREAMS
    attempt: int | None = None  # None: the newest
    end_offset: int | None = None
    start_offset: int | None = None


@dataclass(frozen=True, slots=True)
class LogLine:
    stream: str
    data: bytes
    is_incomplete: bool = False  # its end is not written yet


@dataclass(frozen=True, slots=True)
class LogWindow:
    job: Job
    attempt: int
    lines: tuple[LogLine, ...]
    start: int  # in bytes over all its streams
    end: int
    total: int
    next_offsets: Mapping[str, int]  # of each stream: from where to ask for what comes next
    skipped_bytes: int = 0  # bytes that came since and are not shown


def read_log_window(context: Context, caller: Caller, job_id: JobId, wish: LogWindowRequest) -> LogWindow:
    """For those who may inspect the job."""
    job = require_inspectable_job(context, caller, job_id)
    require_program_engine(context)
    number = resolve_attempt_number(job, wish.attempt)
    source = _Source(context, job, number)
    pieces = _pieces(source, dict.fromkeys(wish.streams, 0))
    total = sum(piece.size for piece in pieces)
    if wish.start_offset is not None:
        start = min(wish.start_offset, total)
        end = min(total, start + WINDOW_BYTES)
    else:
        end = total if wish.end_offset is None else min(wish.end_offset, total)
        start = max(0, end - WINDOW_BYTES)
        start += _into_a_line(source, _cut(pieces, start, end))
    return _window(source, _cut(pieces, start, end), _Span(start, end, total), {})


def read_log_since(
    context: Context, caller: Caller, job_id: JobId, attempt: int | None, offsets: Mapping[str, int]
) -> LogWindow:
    """What each of these streams got after its byte, and a last line that is not whole, each time again."""
    job = require_inspectable_job(context, caller, job_id)
    number = resolve_attempt_number(job, attempt)
    source = _Source(context, job, number)
    pieces = _pieces(source, offsets)
    new = sum(piece.size for piece in pieces)
    skipped = new - WINDOW_BYTES if new > _MOST_NEW_BYTES else 0
    known = sum(offsets.values())
    span = _Span(known + skipped, known + new, known + new, skipped)
    return _window(source, _cut(pieces, skipped, new), span, offsets)


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of one attempt."""

    context: Context
    job: Job
    attempt: int

    def size(self, stream: str) -> int:
        return read_log(self.context, self.job, LogRange(stream, 0, 0, self.attempt)).size

    def read(self, stream: str, start: int, end: int) -> bytes:
        return read_log(self.context, self.job, LogRange(stream, start, end - start, self.attempt)).data

    def order(self) -> list[tuple[str, int]]:
        return read_stream_order(self.context, self.job, self.attempt)


@dataclass(frozen=True, slots=True)
class _Piece:
    stream: str
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class _Span:
    start: int
    end: int
    total: int
    skipped: int = 0


def _pieces(source: _Source, offsets: Mapping[str, int]) -> list[_Piece]:
    """What was written after these bytes, in the order it was written; where that is not known, one by one."""
    if not source.attempt:
        return []
    sizes = {name: source.size(name) for name in offsets}
    reached = {name: min(offset, sizes[name]) for name, offset in offsets.items()}
    found = []
    ordered = source.order() if len(offsets) > 1 else []
    for name, mark in [*ordered, *sizes.items()]:
        end = min(mark, sizes.get(name, 0))
        if end > reached.get(name, end):
            found.append(_Piece(name, reached[name], end))
            reached[name] = end
    return found


def _cut(pieces: Iterable[_Piece], start: int, end: int) -> list[_Piece]:
    """What lies between two places of the whole."""
    found, at = [], 0
    for piece in pieces:
        first, last = max(start, at), min(end, at + piece.size)
        if first < last:
            found.append(_Piece(piece.stream, piece.start + first - at, piece.start + last - at))
        at += piece.size
    return found


def _into_a_line(source: _Source, pieces: Sequence[_Piece]) -> int:
    """Bytes up to the first line that begins in these pieces: the end of one alone looks like a line of its own.
    0 if none begins soon."""
    if not pieces or pieces[0].start == 0:
        return 0
    first = pieces[0]
    found = source.read(first.stream, first.start - 1, min(first.end, first.start + _LONGEST_LINE)).find(b"\n")
    return found if 0 < found < sum(piece.size for piece in pieces) else 0


def _window(source: _Source, pieces: Sequence[_Piece], span: _Span, known: Mapping[str, int]) -> LogWindow:
    begins = {piece.stream: piece.start for piece in reversed(pieces)}
    ends = {piece.stream: piece.end for piece in pieces}
    streams = {
        name: _Assembly(name, source.read(name, begin, ends[name]), begin) for name, begin in begins.items()
    }
    lines = [line for piece in pieces for line in streams[piece.stream].lines(piece.end)]
    lines += [line for assembly in streams.values() for line in assembly.rest(span.end == span.total)]
    following = {**known, **{name: assembly.at for name, assembly in streams.items()}}
    job, attempt = source.job, source.attempt
    return LogWindow(job, attempt, tuple(lines), span.start, span.end, span.total, following, span.skipped)


@dataclass(slots=True)
class _Assembly:
    """Makes lines of what one stream got."""

    stream: str
    data: bytes
    begin: int  # where the data begins in its stream
    _done: int = field(default=0)  # bytes of the data that are lines already

    @property
    def at(self) -> int:
        return self.begin + self._done

    def lines(self, up_to: int) -> Iterator[LogLine]:
        """Those that end by then."""
        limit = up_to - self.begin
        while (end := self.data.find(b"\n", self._done, limit)) >= 0:
            yield LogLine(self.stream, self.data[self._done : end])
            self._done = end + 1

    def rest(self, is_newest: bool) -> Iterator[LogLine]:
        """What has no end yet. Of a bar that is drawn over and over only the newest is kept."""
        text = self.data[self._done :]
        if not text:
            return
        if len(text) > _LONGEST_LINE and b"\r" not in text[-_LONGEST_LINE:]:
            self._done = len(self.data)
        elif (newest := text.rstrip(b"\r").rfind(b"\r")) > 0:
            self._done += newest
        yield LogLine(self.stream, text, is_incomplete=is_newest and self._done < len(self.data))
