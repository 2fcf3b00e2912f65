"""The part of a trace that is replayed: the jobs submitted in a period."""

import math
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.errors import Invalid
from heliostat.models.quantities import parse_duration
from heliostat.simulation.traces.csv_format import NOT_SELECTED
from heliostat.simulation.traces.trace import BadValue, Trace
from heliostat.simulation.traces.value_parsing import parse_time_seconds


def select_submission_period(trace: Trace, since: str | None, until: str | None) -> Trace:
    """The jobs submitted at or after `since` and before `until`. Each is a time as in a trace, or a duration since
    the first submission; None: no limit."""
    first, last = trace.jobs[0].submitted_at, trace.jobs[-1].submitted_at
    start = -math.inf if since is None else _read_time("--from", since, first)
    end = math.inf if until is None else _read_time("--to", until, first)
    if start >= end:
        raise Invalid("--from is not before --to.", "Swap them.")
    selected = tuple(job for job in trace.jobs if start <= job.submitted_at < end)
    if not selected:
        hint = f"Its jobs were submitted from {_format_time(first)} to {_format_time(last)}."
        raise Invalid(f"{trace.name}: no job was submitted in this period.", hint)
    count = trace.skipped.get(NOT_SELECTED, 0) + len(trace.jobs) - len(selected)
    return replace(
        trace, jobs=selected, skipped={**trace.skipped, NOT_SELECTED: count} if count else trace.skipped
    )


def _read_time(option: str, text: str, first: float) -> float:
    """A number alone is a time, as in traces that count seconds; a duration has a unit."""
    try:
        if not text.strip().isdecimal():
            return first + parse_duration(text)
    except ValueError:
        pass  # no duration
    try:
        return parse_time_seconds(option, text)
    except BadValue:
        hint = "Write 2026-10-01, 2026-10-01T12:00, or a duration since the first submission: 7d."
        raise Invalid(f"{option}: {text[:40]!a} is not a time.", hint) from None


def _format_time(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"
