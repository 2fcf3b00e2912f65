"""Log section of the job page: a window of the log, its links, and search results."""

from dataclasses import dataclass
from typing import Any

from heliostat.errors import Conflict, TooManyRequests
from heliostat.models import Job
from heliostat.services.logs.reader import STREAMS
from heliostat.services.logs.search import LogSearchRequest, LogSearchResult, search_log
from heliostat.services.logs.windows import LogLine, LogWindow, LogWindowRequest, read_log_window
from heliostat.web import formatting
from heliostat.web.job_page.ansi_text import StyledSpan, parse_ansi_line, strip_ansi
from heliostat.web.request_context import AuthenticatedRequest
from heliostat.web.view_models import PageUrl

STREAM_CHOICES = ("both", *STREAMS)


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Query parameters of the log section."""

    stream: str = "both"
    attempt: int | None = None
    before: int | None = None
    at: int | None = None
    find: str = ""

    @property
    def is_tail(self) -> bool:
        """Whether the end of the log is requested."""
        return self.before is None and self.at is None

    @property
    def streams(self) -> tuple[str, ...]:
        return STREAMS if self.stream == "both" else (self.stream,)


@dataclass(frozen=True, slots=True)
class LogLineView:
    stream: str
    spans: tuple[StyledSpan, ...]
    is_incomplete: bool


@dataclass(frozen=True, slots=True)
class LogSearchHit:
    stream: str
    text: str
    href: str


@dataclass(frozen=True, slots=True)
class LogSearchView:
    text: str
    hits: tuple[LogSearchHit, ...]
    summary: str


@dataclass(frozen=True, slots=True)
class LinkOption:
    label: str
    href: str
    is_current: bool


@dataclass(frozen=True, slots=True)
class LogView:
    error: str  # why no log is shown
    attempt: int
    stream: str
    streams: tuple[LinkOption, ...]
    attempts: tuple[LinkOption, ...]
    lines: tuple[LogLineView, ...]
    stdout_offset: int  # where polling continues
    stderr_offset: int
    is_following: bool
    earlier_url: str
    later_url: str
    newest_url: str
    size_text: str
    downloads: tuple[tuple[str, str], ...]
    search: LogSearchView | None


def build_log_view(request: AuthenticatedRequest, job: Job, query: LogQuery) -> LogView:
    try:
        window = read_log_window(request.context, request.caller, job.id, _window_request(query))
    except Conflict as error:
        window = LogWindow(job, 0, (), 0, 0, 0, {})
        return _view(query, window, None, f"{error.message} {error.hint or ''}".strip())
    return _view(query, window, _search(request, job, query) if query.find else None)


def serialize_log_line(line: LogLine) -> dict[str, Any]:
    """For the script that follows the log."""
    return {"stream": line.stream, "runs": parse_ansi_line(line.data)}


def _window_request(query: LogQuery) -> LogWindowRequest:
    return LogWindowRequest(query.streams, query.attempt, query.before, query.at)


def _view(query: LogQuery, window: LogWindow, search: LogSearchView | None, error: str = "") -> LogView:
    job = window.job  # consistent with the window; another attempt may have started since
    url = PageUrl(
        f"/jobs/{job.id}", {"stream": _unless_default(query.stream), "attempt": str(query.attempt or "")}
    )
    is_end = window.end >= window.total
    is_newest = window.attempt == job.attempt
    return LogView(
        error=error,
        attempt=window.attempt,
        stream=query.stream,
        streams=tuple(
            LinkOption(name, _log_anchor(url.with_query(stream=_unless_default(name))), name == query.stream)
            for name in STREAM_CHOICES
        ),
        attempts=_attempts(url, job, window.attempt),
        lines=tuple(
            LogLineView(line.stream, parse_ansi_line(line.data), line.is_incomplete) for line in window.lines
        ),
        stdout_offset=window.next_offsets.get("stdout", 0),
        stderr_offset=window.next_offsets.get("stderr", 0),
        is_following=is_end and is_newest and query.is_tail and not job.is_terminal and not error,
        earlier_url=_log_anchor(url.with_query(before=window.start)) if window.start > 0 else "",
        later_url=_log_anchor(url.with_query(at=window.end)) if not is_end else "",
        newest_url=_log_anchor(url.with_query()) if not is_end or query.at is not None else "",
        size_text=_size_text(window),
        downloads=_downloads(job, window.attempt) if not error else (),
        search=search,
    )


def _log_anchor(url: str) -> str:
    return url + "#log"


def _unless_default(stream: str) -> str:
    return "" if stream == "both" else stream


def _attempts(url: PageUrl, job: Job, shown: int) -> tuple[LinkOption, ...]:
    if job.attempt < 2:
        return ()
    first = max(1, job.attempt - _MAX_ATTEMPTS + 1)
    numbers = sorted({*range(first, job.attempt + 1), shown} - {0})
    return tuple(
        LinkOption(
            str(number),
            _log_anchor(url.with_query(attempt=None if number == job.attempt else number)),
            number == shown,
        )
        for number in numbers
    )


_MAX_ATTEMPTS = 8


def _downloads(job: Job, attempt: int) -> tuple[tuple[str, str], ...]:
    if not attempt:
        return ()
    return tuple((name, f"/jobs/{job.id}/log/raw?stream={name}&attempt={attempt}") for name in STREAMS)


def _size_text(window: LogWindow) -> str:
    if not window.total:
        return ""
    whole = _size(window.total)
    shown = window.end - window.start
    if shown >= window.total:
        return whole
    prefix = "last" if window.end >= window.total else "first" if not window.start else "part:"
    return f"{prefix} {_size(shown)} of {whole}"


def _search(request: AuthenticatedRequest, job: Job, query: LogQuery) -> LogSearchView:
    search = LogSearchRequest(query.find, query.streams, query.attempt)
    try:
        result = search_log(request.context, request.caller, job.id, search)
    except TooManyRequests as error:
        return LogSearchView(query.find, (), f"{error.message} {error.hint or ''}".strip())
    url = PageUrl(f"/jobs/{job.id}", {"attempt": str(query.attempt or "")})
    hits = tuple(
        LogSearchHit(
            hit.stream, strip_ansi(hit.data), _log_anchor(url.with_query(stream=hit.stream, at=hit.line_offset))
        )
        for hit in result.matches
    )
    return LogSearchView(query.find, hits, _search_summary(result))


def _search_summary(result: LogSearchResult) -> str:
    lines = formatting.format_count(len(result.matches), "line") if result.matches else "No lines"
    if result.is_complete:
        return f"{lines} found."
    searched = _size(result.searched_bytes)
    return f"{lines} found in the first {searched}. Download the log to search all of it."


def _size(count: int) -> str:
    for unit, step in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= step:
            return f"{count / step:.1f}".removesuffix(".0") + f" {unit}"
    return formatting.format_count(count, "byte")
