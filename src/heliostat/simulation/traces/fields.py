"""From named values, as CSV and Heliostat's history have them, to a job."""

from collections.abc import Callable, Mapping
from typing import Any

from heliostat.simulation.traces import values
from heliostat.simulation.traces.records import BadValue, TraceJob, checked

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
