"""Log windows: parts of a job's output as lines, with both streams in the order they were written."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from heliostat.models import Caller, Job, JobId
from heliostat.services.context import Context, require_program_engine
from heliostat.services.logs.reader import STREAMS, LogRange, read_log, read_stream_order, resolve_attempt_number
from heliostat.services.permissions import require_inspectable_job

WINDOW_BYTES = 32 * 1024
_MAX_NEW_BYTES = 256 * 1024  # of new output; a client further behind continues at the end
_MAX_LINE_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True)
class LogWindowRequest:
    """Which part: before `end_offset`, from `start_offset`, or the end. Offsets count bytes over all its
    streams."""

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
    next_offsets: Mapping[str, int]  # of each stream, for the next request
    skipped_bytes: int = 0  # new bytes that are not included


def read_log_window(context: Context, caller: Caller, job_id: JobId, request: LogWindowRequest) -> LogWindow:
    """For users who may inspect the job."""
    job = require_inspectable_job(context, caller, job_id)
    require_program_engine(context)
    number = resolve_attempt_number(job, request.attempt)
    source = _Source(context, job, number)
    pieces = _pieces(source, dict.fromkeys(request.streams, 0))
    total = sum(piece.size for piece in pieces)
    without_holes = _spans_without_holes(source, pieces)
    if request.start_offset is not None:
        start = min(request.start_offset, total)
        first, last = next((span for span in without_holes if span[1] > start), (total, total))
        start = max(start, first)
        end = min(last, start + WINDOW_BYTES)
    else:
        end = total if request.end_offset is None else min(request.end_offset, total)
        first, last = next((span for span in reversed(without_holes) if span[0] < end), (0, 0))
        end = min(end, last)
        start = max(first, end - WINDOW_BYTES)
        if start > first:
            start += _bytes_to_next_line(source, _cut(pieces, start, end))
    return _window(source, _cut(pieces, start, end), _Span(start, end, total), {})


def read_log_since(
    context: Context, caller: Caller, job_id: JobId, attempt: int | None, offsets: Mapping[str, int]
) -> LogWindow:
    """New lines of each stream after its offset. An incomplete last line is included each time."""
    job = require_inspectable_job(context, caller, job_id)
    number = resolve_attempt_number(job, attempt)
    source = _Source(context, job, number)
    pieces = _pieces(source, offsets)
    new = sum(piece.size for piece in pieces)
    skipped = new - WINDOW_BYTES if new > _MAX_NEW_BYTES else 0
    known_offsets = sum(offsets.values())
    span = _Span(known_offsets + skipped, known_offsets + new, known_offsets + new, skipped)
    return _window(source, _cut(pieces, skipped, new), span, offsets)


@dataclass(frozen=True, slots=True)
class _Source:
    """The files of one attempt."""

    context: Context
    job: Job
    attempt: int

    def size(self, stream: str) -> int:
        return read_log(self.context, self.job, LogRange(stream, 0, 0, self.attempt)).size

    def holes(self, stream: str) -> Sequence[tuple[int, int]]:
        return read_log(self.context, self.job, LogRange(stream, 0, 0, self.attempt)).holes

    def read(self, stream: str, start: int, end: int) -> bytes:
        """All bytes of this part, with zeros in holes."""
        data = b""
        while (left := end - start - len(data)) > 0:
            at = start + len(data)
            part = read_log(self.context, self.job, LogRange(stream, at, left, self.attempt))
            if not part.data:
                break
            data += (bytes(min(left, part.offset - at)) + part.data)[:left]
        return data

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
    """Output after these offsets, in the order it was written; where that is unknown, one stream after the
    other."""
    if not source.attempt:
        return []
    sizes = {name: source.size(name) for name in offsets}
    read_up_to = {name: min(offset, sizes[name]) for name, offset in offsets.items()}
    result = []
    ordered = source.order() if len(offsets) > 1 else []
    for name, mark in [*ordered, *sizes.items()]:
        end = min(mark, sizes.get(name, 0))
        if end > read_up_to.get(name, end):
            result.append(_Piece(name, read_up_to[name], end))
            read_up_to[name] = end
    return result


def _spans_without_holes(source: _Source, pieces: Sequence[_Piece]) -> list[tuple[int, int]]:
    """The parts of the whole in which output exists."""
    holes = {name: source.holes(name) for name in {piece.stream for piece in pieces}}
    spans, begin, at = [], 0, 0
    for piece in pieces:
        for hole_start, hole_end in holes[piece.stream]:
            first, last = max(hole_start, piece.start), min(hole_end, piece.end)
            if first < last:
                spans.append((begin, at + first - piece.start))
                begin = at + last - piece.start
        at += piece.size
    return [(first, last) for first, last in (*spans, (begin, at)) if first < last]


def _cut(pieces: Iterable[_Piece], start: int, end: int) -> list[_Piece]:
    """The pieces between two offsets of the whole."""
    result, at = [], 0
    for piece in pieces:
        first, last = max(start, at), min(end, at + piece.size)
        if first < last:
            result.append(_Piece(piece.stream, piece.start + first - at, piece.start + last - at))
        at += piece.size
    return result


def _bytes_to_next_line(source: _Source, pieces: Sequence[_Piece]) -> int:
    """Bytes to skip up to the first line that begins in these pieces, because the end of a line would look like a
    complete one; 0: no line begins soon."""
    if not pieces or pieces[0].start == 0:
        return 0
    first = pieces[0]
    result = source.read(first.stream, first.start - 1, min(first.end, first.start + _MAX_LINE_BYTES)).find(b"\n")
    return result if 0 < result < sum(piece.size for piece in pieces) else 0


def _window(source: _Source, pieces: Sequence[_Piece], span: _Span, known_offsets: Mapping[str, int]) -> LogWindow:
    begins = {piece.stream: piece.start for piece in reversed(pieces)}
    ends = {piece.stream: piece.end for piece in pieces}
    streams = {
        name: _LineSplitter(name, source.read(name, begin, ends[name]), begin) for name, begin in begins.items()
    }
    lines = [line for piece in pieces for line in streams[piece.stream].lines(piece.end)]
    lines += [line for splitter in streams.values() for line in splitter.rest(span.end == span.total)]
    next_offsets = {**known_offsets, **{name: splitter.at for name, splitter in streams.items()}}
    job, attempt = source.job, source.attempt
    return LogWindow(job, attempt, tuple(lines), span.start, span.end, span.total, next_offsets, span.skipped)


@dataclass(slots=True)
class _LineSplitter:
    """Splits the data of one stream into lines."""

    stream: str
    data: bytes
    begin: int  # where the data begins in its stream
    _done: int = field(default=0)  # bytes of the data that have been split

    @property
    def at(self) -> int:
        return self.begin + self._done

    def lines(self, up_to: int) -> Iterator[LogLine]:
        """Lines that end before this offset of the stream."""
        limit = up_to - self.begin
        while (end := self.data.find(b"\n", self._done, limit)) >= 0:
            yield LogLine(self.stream, self.data[self._done : end])
            self._done = end + 1

    def rest(self, is_newest: bool) -> Iterator[LogLine]:
        """The last line, without a line end. Of a progress bar, only the newest state is read again."""
        text = self.data[self._done :]
        if not text:
            return
        if len(text) > _MAX_LINE_BYTES and b"\r" not in text[-_MAX_LINE_BYTES:]:
            self._done = len(self.data)
        elif (newest := text.rstrip(b"\r").rfind(b"\r")) > 0:
            self._done += newest
        yield LogLine(self.stream, text, is_incomplete=is_newest and self._done < len(self.data))
