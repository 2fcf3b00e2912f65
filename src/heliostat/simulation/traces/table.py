"""CSV with any columns, mapped to the fields of a job."""

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heliostat.errors import Invalid
from heliostat.simulation.traces import values
from heliostat.simulation.traces.records import BadValue, TraceJob, checked

NOT_SELECTED = "not selected"
Row = Mapping[str, str | None]

_READ: Mapping[str, Callable[[str, object], Any]] = {
    "submitted_at": values.time_seconds,
    "run_seconds": values.number,
    "limit_seconds": values.number,
    "gpus": values.number,
    "cpus": values.whole,
    "memory_mib": values.whole,
    "gpu_type": values.name,
    "user": values.name,
    "project": values.name,
    "department": values.name,
    "priority_class": values.name,
    "preemptible": values.truth,
    "tasks": values.whole,
}
TIMES = ("submitted_at", "started_at", "ended_at")
FIELDS = (*_READ, "started_at", "ended_at")
"""What can be mapped; start and end together stand for the run time."""


@dataclass(frozen=True, slots=True)
class Source:
    """The column a field comes from, and what its numbers are divided by."""

    column: str
    divisor: float = 1.0


@dataclass(frozen=True, slots=True)
class Table:
    """A CSV file: `columns` say where fields come from, `where` which rows count."""

    name: str
    columns: Mapping[str, Source] = field(default_factory=dict)
    where: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def records(self, lines: Iterable[str]) -> Iterator[tuple[int, Row]]:
        reader = csv.DictReader(lines)
        try:
            header = [title.strip() for title in reader.fieldnames or ()]
            reader.fieldnames = header
            self._check(header)
            for row in reader:
                yield reader.line_num, row
        except csv.Error as error:
            raise Invalid(f"{self.name}, line {reader.line_num}: {error}.", "Is this a CSV file?") from error

    def job(self, row: Row) -> TraceJob | str:
        if any((row.get(column) or "") not in allowed for column, allowed in self.where.items()):
            return NOT_SELECTED
        found: dict[str, object] = {name: row[name] for name in FIELDS if name in row}
        for name, source in self.columns.items():
            text = row.get(source.column)
            found[name] = _divided(name, text, source) if text and source.divisor != 1 else text
        try:
            return job_of(found)
        except BadValue as error:
            column = self.columns.get(error.column, Source(error.column)).column
            raise BadValue(f"column {column}", error.what) from None

    def _check(self, header: Sequence[str]) -> None:
        """Before any row is read: columns that do not exist, fields that are needed."""
        shown = f"Its columns: {', '.join(header[:40]) or 'none'}."
        for column in (*(source.column for source in self.columns.values()), *self.where):
            if column not in header:
                raise Invalid(f"{self.name} has no column {column!r}.", shown)
        known = {*self.columns, *header}
        if "submitted_at" not in known:
            hint = f"Map one: --map submitted_at=COLUMN. {shown}"
            raise Invalid(f"{self.name}: no column is submitted_at.", hint)
        if "run_seconds" not in known and not {"started_at", "ended_at"} <= known:
            hint = f"Map one: --map run_seconds=COLUMN, or started_at and ended_at. {shown}"
            raise Invalid(f"{self.name}: no column is run_seconds.", hint)


def parse_map(texts: Iterable[str]) -> dict[str, Source]:
    """`gpus=num_gpus,submitted_at=stamp/1000`: fields, the columns they come from, and divisors."""
    found: dict[str, Source] = {}
    for part in (part.strip() for text in texts for part in text.split(",")):
        name, equals, column = (word.strip() for word in part.partition("="))
        if not equals or not column:
            raise Invalid(f"Cannot read {part!r} as a mapping.", "Write field=column, as gpus=num_gpus.")
        if name not in FIELDS:
            raise Invalid(f"A job has no field {name!r}.", f"Fields: {', '.join(FIELDS)}.")
        found[name] = _source(column)
    return found


def parse_where(texts: Iterable[str]) -> dict[str, frozenset[str]]:
    """`cluster=b436b2`: a row counts when each column named has one of the values given for it."""
    found: dict[str, frozenset[str]] = {}
    for text in texts:
        column, equals, value = text.partition("=")
        if not equals or not column.strip():
            raise Invalid(f"Cannot read {text!r} as a condition.", "Write column=value, as cluster=b436b2.")
        found[column.strip()] = found.get(column.strip(), frozenset()) | {value.strip()}
    return found


def _source(text: str) -> Source:
    """`stamp/1000`; a slash with something else behind it belongs to the column's name."""
    column, _, divisor = text.rpartition("/")
    try:
        value = float(divisor) if column else 1.0
    except ValueError:
        return Source(text)
    if not 0 < value < math.inf:
        raise Invalid(f"{text!r}: {column} cannot be divided by {divisor}.", "Divide by a number above 0.")
    return Source(column, value) if column else Source(text)


def _divided(name: str, text: str, source: Source) -> float:
    read = values.time_seconds if name in TIMES else values.number
    return read(f"column {source.column}", text) / source.divisor


def job_of(given: Mapping[str, object]) -> TraceJob | str:
    """The job, or why it gives none. A job without a user counts as its project's."""
    if not values.given(given, "submitted_at"):
        raise BadValue("submitted_at", "is missing")
    read = {name: _READ[name](name, given[name]) for name in given if name in _READ and values.given(given, name)}
    if "run_seconds" not in read:
        if not (values.given(given, "started_at") and values.given(given, "ended_at")):
            return "never ran"
        ended_at = values.time_seconds("ended_at", given["ended_at"])
        read["run_seconds"] = ended_at - values.time_seconds("started_at", given["started_at"])
    if "user" not in read and "project" in read:
        read["user"] = read["project"]
    return checked(TraceJob(**read))
