"""A file of any known format as a trace."""

import gzip
import io
import json
import zlib
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from heliostat.errors import Invalid, NotFound
from heliostat.simulation.traces.csv_format import TRACE_FIELDS, ColumnSource, CsvFormat, parse_trace_job
from heliostat.simulation.traces.swf_format import SwfFormat
from heliostat.simulation.traces.trace import BadValue, Trace, TraceJob, with_time_limit

BAD_LINES = "bad lines"
_SUFFIXES = {".csv": "csv", ".swf": "swf", ".jsonl": "history", ".ndjson": "history", ".json": "history"}
FORMATS = ("history", "swf", "csv")
_GZIP = b"\x1f\x8b"

_ENDING = {"jobs"}


class TraceFormat(Protocol):
    """Splits a file into numbered records, and makes a job of one."""

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, Any]]: ...

    def parse_job(self, record: Any) -> TraceJob | str:
        """The job; or why this record gives none, `""` when that is not worth counting."""


@dataclass(frozen=True, slots=True)
class TraceReadOptions:
    """How to read a trace."""

    format: str | None = None  # None: told by the file's name
    columns: Mapping[str, ColumnSource] = field(default_factory=dict)
    row_filter: Mapping[str, frozenset[str]] = field(default_factory=dict)
    limit_factor: float | None = None
    skip_bad_lines: bool = False
    priority_classes: Collection[str] | None = None  # that a job may have; None: any


def read_trace(path: Path, how: TraceReadOptions | None = None) -> Trace:
    """All jobs of the file. The first bad line is an error that names it, unless bad ones are to be skipped."""
    how = how or TraceReadOptions()
    skipped: Counter[str] = Counter()
    jobs: list[TraceJob] = []
    with closing(_lines(path)) as lines:
        for found in _jobs(path, _format(path, how), lines, how):
            if isinstance(found, TraceJob):
                jobs.append(with_time_limit(found, how.limit_factor))
            elif found:
                skipped[found] += 1
    if not jobs:
        why = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "it is empty"
        raise Invalid(f"{path.name} has no job to replay: {why}.", "Check the file, --map and --where.")
    return Trace(path.name, tuple(sorted(jobs, key=lambda job: job.submitted_at)), dict(skipped))


def _jobs(path: Path, form: TraceFormat, lines: Iterable[str], how: TraceReadOptions) -> Iterator[TraceJob | str]:
    for line_number, record in form.read_records(lines):
        try:
            yield _of_known_class(form.parse_job(record), how.priority_classes)
        except BadValue as error:
            if not how.skip_bad_lines:
                hint = "Mend the line or the mapping, or leave such lines out with --skip-bad."
                raise Invalid(f"{path.name}, line {line_number}, {error}.", hint) from error
            yield BAD_LINES


def _of_known_class(found: TraceJob | str, classes: Collection[str] | None) -> TraceJob | str:
    if isinstance(found, TraceJob) and classes is not None and found.priority_class not in classes:
        raise BadValue("priority_class", f"{found.priority_class!a} is none of {', '.join(classes)}")
    return found


def _format(path: Path, how: TraceReadOptions) -> TraceFormat:
    name = how.format or _SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if name not in FORMATS:
        raise Invalid(f"{path.name} does not say what format it has.", f"Say --format {', '.join(FORMATS)}.")
    if name == "csv":
        return CsvFormat(path.name, how.columns, how.row_filter)
    if how.columns or how.row_filter:
        raise Invalid("Columns can be mapped and chosen in CSV files only.", f"{path.name} is read as {name}.")
    return SwfFormat() if name == "swf" else HistoryFormat()


def _lines(path: Path) -> Generator[str, None, None]:
    """The text of the file, which may be packed with gzip."""
    try:
        with path.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            content = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(content, "utf-8", "replace", newline="") as text:
                yield from text
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Give a trace, or make one up with --generate 2000.") from None
    except IsADirectoryError:
        raise Invalid(f"{path} is a folder.", "Give a file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Invalid(f"{path.name} cannot be unpacked: {error}.", "Fetch the file again.") from error


class HistoryFormat:
    """Heliostat's own history, as `helio history export` writes it: one JSON object a line. Jobs that never
    started are left out. The last line says how many there are."""

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        return ((line_number, line) for line_number, line in enumerate(lines, 1) if line.strip())

    def parse_job(self, line: str) -> TraceJob | str:
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            raise BadValue("line", "is not JSON") from None
        if not isinstance(read, Mapping):
            raise BadValue("line", "is not a JSON object")
        if set(read) == _ENDING:
            return ""
        if "started_at" in read and read["started_at"] is None:
            return "never ran"
        found = {name: read[name] for name in TRACE_FIELDS if name in read}
        return parse_trace_job(
            found | {"limit_seconds": read.get("time_limit_seconds", read.get("limit_seconds"))}
        )
