"""What must hold of schedules after whatever has happened to them: each due time once, none left out. Pure."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True)
class History:
    due: Mapping[str, Sequence[str]]  # by schedule: the times at which it was due
    firings: Mapping[str, Sequence[Mapping[str, Any]]]  # as the server tells them
    ran: Counter[str]  # `NAME TIME`, written by the jobs themselves


def problems(history: History) -> list[str]:
    """Everything that is wrong, in words; empty: all is well."""
    found = [word for name in history.due for word in _of_schedule(history, name)]
    expected = {f"{name} {at}" for name, times in history.due.items() for at in times}
    return found + [f"{line}: ran and was never due" for line in sorted(history.ran.keys() - expected)]


def _of_schedule(history: History, name: str) -> Iterator[str]:
    fired = Counter(one["due_at"] for one in history.firings[name])
    for at in history.due[name]:
        if fired[at] != 1:
            yield f"{name} {at}: fired {fired[at]} times"
        if (times := history.ran[f"{name} {at}"]) != 1:
            yield f"{name} {at}: its job ran {times} times"
    for at in sorted(fired.keys() - set(history.due[name])):
        yield f"{name} {at}: fired and was never due"
    jobs = Counter(one["job_id"] for one in history.firings[name])
    yield from (f"{name}: job {job} belongs to {count} firings" for job, count in jobs.items() if count > 1)
    for one in history.firings[name]:
        if one["state"] != "succeeded":
            yield f"{name} {one['due_at']}: it has {one['state']}"
        if _time(one["at"]) < _time(one["due_at"]):
            yield f"{name} {one['due_at']}: fired before it was due"


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
