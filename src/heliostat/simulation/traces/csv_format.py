"""CSV with any columns, mapped to the fields of a job."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliostat.errors import Invalid
from heliostat.simulation.traces import value_parsing
from heliostat.simulation.traces.trace import BadValue, TraceJob, validate_trace_job

NOT_SELECTED = "not selected"
CsvRow = Mapping[str, str | None]

_READ: Mapping[str, Callable[[str, object], Any]] = {
    "submitted_at": value_parsing.parse_time_seconds,
    "run_seconds": value_parsing.parse_number,
    "limit_seconds": value_parsing.parse_number,
    "gpus": value_parsing.parse_number,
    "cpus": value_parsing.parse_whole_number,
    "memory_mib": value_parsing.parse_whole_number,
    "gpu_type": value_parsing.parse_name,
    "user": value_parsing.parse_name,
    "project": value_parsing.parse_name,
    "department": value_parsing.parse_name,
    "priority_class": value_parsing.parse_name,
    "preemptible": value_parsing.parse_bool,
    "tasks": value_parsing.parse_whole_number,
}
TIME_FIELDS = ("submitted_at", "started_at", "ended_at")
TRACE_FIELDS = (*_READ, "started_at", "ended_at")
"""What can be mapped; start and end together stand for the run time."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The column a field comes from, and what its numbers are divided by."""

    column: str
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """A CSV file: `columns` say where fields come from, `where` which rows count."""

    file_name: str
    columns: Mapping[str, ColumnSource] = field(default_factory=dict)
    row_filter: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def read_records(self, lines: Iterable[str]) -> Iterator[tuple[int, CsvRow]]:
        reader = csv.DictReader(lines)
        try:
            header = [title.strip() for title in reader.fieldnames or ()]
            reader.fieldnames = header
            self._check(header)
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise Invalid(f"{self.file_name}, line {reader.line_num}: {error}.", "Is this a CSV file?") from error

    def parse_job(self, row: CsvRow) -> TraceJob | str:
        if any((row.get(column) or "") not in allowed for column, allowed in self.row_filter.items()):
            return NOT_SELECTED
        found: dict[str, object] = {name: row[name] for name in TRACE_FIELDS if name in row}
        for name, source in self.columns.items():
            text = row.get(source.column)
            found[name] = _divided(name, text, source) if text and source.divisor != 1 else text
        try:
            return parse_trace_job(found)
        except BadValue as error:
            column = self.columns.get(error.column, ColumnSource(error.column)).column
            raise BadValue(f"column {column}", error.problem) from None

    def _check(self, header: Sequence[str]) -> None:
        """Before any row is read: columns that do not exist, fields that are needed."""
        shown = f"Its columns: {', '.join(header[:40]) or 'none'}."
        for column in (*(source.column for source in self.columns.values()), *self.row_filter):
            if column not in header:
                raise Invalid(f"{self.file_name} has no column {column!r}.", shown)
        known = {*self.columns, *header}
        if "submitted_at" not in known:
            hint = f"Map one: --map submitted_at=COLUMN. {shown}"
            raise Invalid(f"{self.file_name}: no column is submitted_at.", hint)
        if "run_seconds" not in known and not {"started_at", "ended_at"} <= known:
            hint = f"Map one: --map run_seconds=COLUMN, or started_at and ended_at. {shown}"
            raise Invalid(f"{self.file_name}: no column is run_seconds.", hint)


def parse_column_map(texts: Iterable[str]) -> dict[str, ColumnSource]:
    """`gpus=num_gpus,submitted_at=stamp/1000`: fields, the columns they come from, and divisors."""
    found: dict[str, ColumnSource] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, column = (word.strip() for word in part.partition("="))
        if not equals or not column:
            raise Invalid(f"Cannot read {part!r} as a mapping.", "Write field=column, as gpus=num_gpus.")
        if name not in TRACE_FIELDS:
            raise Invalid(f"A job has no field {name!r}.", f"Fields: {', '.join(TRACE_FIELDS)}.")
        found[name] = _source(column)
    return found


def parse_row_filter(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """`cluster=b436b2`: a row counts when each column named has one of the values given for it."""
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column.strip():
            raise Invalid(f"Cannot read {text!r} as a condition.", "Write column=value, as cluster=b436b2.")
        found[column.strip()] = found.get(column.strip(), frozenset()) | {value.strip()}
    return found


def _source(text: str) -> ColumnSource:
    """`stamp/1000`; a slash with something else behind it belongs to the column's name."""
    column, _, divisor = text.rpartition("/")
    try:
        value = float(divisor) if column else 1.0
    except ValueError:
        return ColumnSource(text)
    if not 0 < value < math.inf:
        raise Invalid(f"{text!r}: {column} cannot be divided by {divisor}.", "Divide by a number above 0.")
    return ColumnSource(column, value) if column else ColumnSource(text)


def _divided(name: str, text: str, source: ColumnSource) -> float:
    read = value_parsing.parse_time_seconds if name in TIME_FIELDS else value_parsing.parse_number
    return read(f"column {source.column}", text) / source.divisor


def parse_trace_job(given: Mapping[str, object]) -> TraceJob | str:
    """The job, or why it gives none. A job without a user counts as its project's."""
    if not value_parsing.is_given(given, "submitted_at"):
        raise BadValue("submitted_at", "is missing")
    read = {
        name: _READ[name](name, given[name])
        for name in given
        if name in _READ and value_parsing.is_given(given, name)
    }
    if "run_seconds" not in read:
        if not (value_parsing.is_given(given, "started_at") and value_parsing.is_given(given, "ended_at")):
            return "never ran"
        ended_at = value_parsing.parse_time_seconds("ended_at", given["ended_at"])
        read["run_seconds"] = ended_at - value_parsing.parse_time_seconds("started_at", given["started_at"])
    if "user" not in read and "project" in read:
        read["user"] = read["project"]
    return validate_trace_job(TraceJob(**read))
