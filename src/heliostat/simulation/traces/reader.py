"""Reader of trace files: history export, SWF and CSV, optionally compressed with gzip."""

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
from heliostat.simulation.traces.swf_format import GpuSource, SwfFormat
from heliostat.simulation.traces.trace import BadValue, Trace, TraceJob, with_time_limit

BAD_LINES = "bad lines"
_SUFFIXES = {".csv": "csv", ".swf": "swf", ".jsonl": "history", ".ndjson": "history", ".json": "history"}
FORMATS = ("history", "swf", "csv")
_GZIP = b"\x1f\x8b"

_ENDING = {"jobs"}


class TraceFormat(Protocol):
    """Splits a file into numbered records and parses each into a job."""

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, Any]]: ...

    def parse_job(self, record: Any) -> TraceJob | str:
        """The job; or why this record is skipped, `""` if it is not counted."""


@dataclass(frozen=True, slots=True)
class TraceReadOptions:
    """How to read a trace."""

    format: str | None = None  # None: by the suffix of the file
    columns: Mapping[str, ColumnSource] = field(default_factory=dict)
    row_filter: Mapping[str, frozenset[str]] = field(default_factory=dict)
    gpus_from: GpuSource | None = None  # of an SWF file; None: its jobs have no GPUs
    limit_factor: float | None = None
    skip_bad_lines: bool = False
    priority_classes: Collection[str] | None = None  # allowed ones; None: any


def read_trace(path: Path, options: TraceReadOptions | None = None) -> Trace:
    """All jobs of the file. Raises Invalid for the first bad line, unless bad lines are skipped."""
    options = options or TraceReadOptions()
    skipped: Counter[str] = Counter()
    jobs: list[TraceJob] = []
    with closing(_lines(path)) as lines:
        for job in _jobs(path, _format(path, options), lines, options):
            if isinstance(job, TraceJob):
                jobs.append(with_time_limit(job, options.limit_factor))
            elif job:
                skipped[job] += 1
    if not jobs:
        reasons = ", ".join(f"{count} {reason}" for reason, count in skipped.items()) or "the file is empty"
        raise Invalid(f"{path.name} contains no job to replay: {reasons}.", "Check the file, --map and --where.")
    return Trace(path.name, tuple(sorted(jobs, key=lambda job: job.submitted_at)), dict(skipped))


def _jobs(
    path: Path, trace_format: TraceFormat, lines: Iterable[str], options: TraceReadOptions
) -> Iterator[TraceJob | str]:
    for line_number, record in trace_format.read_records(lines):
        try:
            yield _check_class(trace_format.parse_job(record), options.priority_classes)
        except BadValue as error:
            if not options.skip_bad_lines:
                hint = "Fix the line or the mapping, or skip such lines with --skip-bad."
                place = f"{path.name}, line {line_number}{',' if error.column else ':'}"
                raise Invalid(f"{place} {error}.", hint) from error
            yield BAD_LINES


def _check_class(job: TraceJob | str, classes: Collection[str] | None) -> TraceJob | str:
    if isinstance(job, TraceJob) and classes is not None and job.priority_class not in classes:
        raise BadValue("priority_class", f"{job.priority_class!a} is not one of {', '.join(classes)}")
    return job


def _format(path: Path, options: TraceReadOptions) -> TraceFormat:
    name = options.format or _SUFFIXES.get(Path(path.name.lower().removesuffix(".gz")).suffix)
    if name not in FORMATS:
        raise Invalid(f"The format of {path.name} is unknown.", f"Set --format to one of {', '.join(FORMATS)}.")
    if options.gpus_from and name != "swf":
        hint = f"The format of {path.name} is {name}. For a CSV: --map gpus=COLUMN."
        raise Invalid("--gpus-from works with SWF files only.", hint)
    if name == "csv":
        return CsvFormat(path.name, options.columns, options.row_filter)
    if options.columns or options.row_filter:
        raise Invalid("--map and --where work with CSV files only.", f"The format of {path.name} is {name}.")
    return SwfFormat(options.gpus_from) if name == "swf" else HistoryFormat()


def _lines(path: Path) -> Generator[str, None, None]:
    """The lines of the file, which may be compressed with gzip."""
    try:
        with path.open("rb") as file:
            compressed = file.read(2) == _GZIP
            file.seek(0)
            content = gzip.GzipFile(fileobj=file) if compressed else file
            with io.TextIOWrapper(content, "utf-8", "replace", newline="") as text:
                yield from text
    except FileNotFoundError:
        raise NotFound(
            f"File {path} does not exist.", "Give a trace file, or generate a trace with --generate 2000."
        ) from None
    except IsADirectoryError:
        raise Invalid(f"{path} is a folder.", "Give a file.") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Invalid(f"{path.name} cannot be decompressed: {error}.", "Download the file again.") from error


class HistoryFormat:
    """The output of `helio history export`: one JSON object per line; the last one contains the number of jobs.
    Jobs that never started are skipped."""

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        return ((line_number, line) for line_number, line in enumerate(lines, 1) if line.strip())

    def parse_job(self, line: str) -> TraceJob | str:
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            raise BadValue("", "it is not JSON") from None
        if not isinstance(read, Mapping):
            raise BadValue("", "it is not a JSON object")
        if set(read) == _ENDING:
            return ""
        if "started_at" in read and read["started_at"] is None:
            return "never ran"
        fields = {name: read[name] for name in TRACE_FIELDS if name in read}
        return parse_trace_job(
            fields | {"limit_seconds": read.get("time_limit_seconds", read.get("limit_seconds"))}
        )
