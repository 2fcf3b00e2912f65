"""Traces in CSV format, with a mapping of columns to job fields."""

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
    "id": value_parsing.parse_name,
    "name": value_parsing.parse_name,
}
TIME_FIELDS = ("submitted_at", "started_at", "ended_at")
TRACE_FIELDS = (*_READ, "started_at", "ended_at")
"""Fields that can be mapped; started_at and ended_at together replace run_seconds."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """The column of a field, and the divisor of its numbers."""

    column: str
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """A CSV file. `columns` maps fields to columns, `row_filter` selects rows."""

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
            raise Invalid(
                f"{self.file_name}, line {reader.line_num}: {error}.", "Check that this is a CSV file."
            ) from error

    def parse_job(self, row: CsvRow) -> TraceJob | str:
        if any((row.get(column) or "") not in allowed for column, allowed in self.row_filter.items()):
            return NOT_SELECTED
        result: dict[str, object] = {name: row[name] for name in TRACE_FIELDS if name in row}
        for name, source in self.columns.items():
            text = row.get(source.column)
            result[name] = _divided(name, text, source) if text and source.divisor != 1 else text
        try:
            return parse_trace_job(result)
        except BadValue as error:
            column = self.columns.get(error.column, ColumnSource(error.column)).column
            raise BadValue(f"column {column}", error.problem) from None

    def _check(self, header: Sequence[str]) -> None:
        """Check, before any row is read, that mapped columns exist and required fields are mapped."""
        shown = f"Its columns: {', '.join(header[:40]) or 'none'}."
        for column in (*(source.column for source in self.columns.values()), *self.row_filter):
            if column not in header:
                raise Invalid(f"{self.file_name} has no column {column!r}.", shown)
        known = {*self.columns, *header}
        if "submitted_at" not in known:
            hint = f"Map one: --map submitted_at=COLUMN. {shown}"
            raise Invalid(f"{self.file_name} has no column for submitted_at.", hint)
        if "run_seconds" not in known and not {"started_at", "ended_at"} <= known:
            hint = f"Map one: --map run_seconds=COLUMN, or started_at and ended_at. {shown}"
            raise Invalid(f"{self.file_name} has no column for run_seconds.", hint)


def parse_column_map(texts: Iterable[str]) -> dict[str, ColumnSource]:
    """`gpus=num_gpus,submitted_at=stamp/1000`: fields, their columns, and divisors."""
    result: dict[str, ColumnSource] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, column = (word.strip() for word in part.partition("="))
        if not equals or not column:
            raise Invalid(f"{part!r} is not a mapping.", "Write field=column, for example gpus=num_gpus.")
        if name not in TRACE_FIELDS:
            raise Invalid(f"Unknown field {name!r}.", f"Fields: {', '.join(TRACE_FIELDS)}.")
        result[name] = _source(column)
    return result


def parse_row_filter(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """`cluster=b436b2`: a row is selected if each named column has one of the given values."""
    result: dict[str, frozenset[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column.strip():
            raise Invalid(f"{text!r} is not a condition.", "Write column=value, for example cluster=b436b2.")
        result[column.strip()] = result.get(column.strip(), frozenset()) | {value.strip()}
    return result


def _source(text: str) -> ColumnSource:
    """`stamp/1000`; a slash that no number follows is part of the column name."""
    column, _, divisor = text.rpartition("/")
    try:
        value = float(divisor) if column else 1.0
    except ValueError:
        return ColumnSource(text)
    if not 0 < value < math.inf:
        raise Invalid(f"{text!r}: {divisor} is not a valid divisor.", "Use a number above 0.")
    return ColumnSource(column, value) if column else ColumnSource(text)


def _divided(name: str, text: str, source: ColumnSource) -> float:
    parse = value_parsing.parse_time_seconds if name in TIME_FIELDS else value_parsing.parse_number
    return parse(f"column {source.column}", text) / source.divisor


def parse_trace_job(values: Mapping[str, object]) -> TraceJob | str:
    """The job, or why there is none. The default user is the name of the project."""
    if not value_parsing.is_given(values, "submitted_at"):
        raise BadValue("submitted_at", "is missing")
    parsed = {
        name: _READ[name](name, values[name])
        for name in values
        if name in _READ and value_parsing.is_given(values, name)
    }
    if "run_seconds" not in parsed:
        if not (value_parsing.is_given(values, "started_at") and value_parsing.is_given(values, "ended_at")):
            return "never ran"
        ended_at = value_parsing.parse_time_seconds("ended_at", values["ended_at"])
        parsed["run_seconds"] = ended_at - value_parsing.parse_time_seconds("started_at", values["started_at"])
    if "user" not in parsed and "project" in parsed:
        parsed["user"] = parsed["project"]
    return validate_trace_job(TraceJob(**parsed))
