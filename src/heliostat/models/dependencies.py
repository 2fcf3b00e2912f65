"""Dependencies between jobs: conditions, references, cycles and the earliest start. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from heliostat.models.states import TERMINAL_STATES, JobState

MAX_PARENTS = 10_000  # of one job
MAX_DEPENDENCIES_PER_REQUEST = 100_000
_MAX_LENGTH = 200  # characters of one reference
_ARRAY = "array:"


class DependencyCondition(StrEnum):
    """How a parent must end for its child to start. If it ends in another way, the child is cancelled."""

    OK = "ok"  # it completes
    ANY = "any"  # it ends, with any result
    FAILED = "failed"  # it ends without completing
    BUILT = "built"  # it completes: the environment of the child is ready
    WORKFLOW_DECIDES = "decided"  # it ends; the workflow decides whether the child starts

    def is_met_by(self, state: JobState) -> bool:
        """Whether a parent in this state meets the condition."""
        if self in (DependencyCondition.ANY, DependencyCondition.WORKFLOW_DECIDES):
            return state in TERMINAL_STATES
        return state in TERMINAL_STATES and (state is JobState.COMPLETED) == (
            self is not DependencyCondition.FAILED
        )


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job starts only after this parent has ended, and only if its condition is met."""

    parent_id: int
    condition: DependencyCondition = DependencyCondition.OK


@dataclass(frozen=True, slots=True)
class ParentReference:
    """A parent as a request names it: `12`, `array:5`, or the name of another job of the same request."""

    reference: str
    rule: DependencyCondition = DependencyCondition.OK
    each: bool = False  # of an array: each element waits only for the element with the same index

    @property
    def job_id(self) -> int | None:
        return int(self.reference) if self.reference.isdecimal() else None

    @property
    def array_id(self) -> int | None:
        number = self.reference.removeprefix(_ARRAY)
        return int(number) if number != self.reference and number.isdecimal() else None


def parse_parents(value: object) -> tuple[str, ...]:
    """`12`, `"12, array:5"` or a list: each reference once. Raises ValueError."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",") if _is_reference(value) else None
    if parts is None or not all(_is_reference(part) for part in parts):
        raise ValueError("name jobs by number: 12, [12, 13], array:5; or a job of the same request by its name")
    if len(parts) > MAX_PARENTS:
        raise ValueError(f"a job may wait for at most {MAX_PARENTS} other jobs, not for {len(parts)}")
    return tuple(dict.fromkeys(_reference(str(part).strip()) for part in parts))


def parse_begin(text: str) -> datetime | timedelta:
    """`2026-12-01T08:00`, in UTC if it has no zone, or `+2h` after the submission."""
    from heliostat.models.quantities import parse_duration

    text = text.strip()[: _MAX_LENGTH + 1]
    if text.startswith("+"):
        seconds = parse_duration(text[1:])
        if seconds > _MAX_BEGIN_SECONDS:
            raise ValueError("that is more than ten years from now")
        return timedelta(seconds=seconds)
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        is_near = 2000 <= at.year < 2200
    except (ValueError, OverflowError):
        is_near = False
    if not is_near:
        raise ValueError(f"{text[:40]!a} is not a time; write 2026-12-01T08:00, or +2h for two hours from now")
    return at


def format_begin(begin: datetime | timedelta) -> str:
    """In the format of `parse_begin`."""
    if isinstance(begin, timedelta):
        return f"+{int(begin.total_seconds())}s"
    return begin.isoformat().replace("+00:00", "Z")


def describe_end(state: JobState) -> str:
    """How a job ended, to follow its number in a sentence."""
    return _END_VERBS.get(state, state.value.replace("_", " "))


def describe_broken_dependency(parent: int, state: JobState) -> str:
    """Why a child cannot start any more."""
    return f"job {parent}, on which it depends, {describe_end(state)}"


def find_cycle(parents: Mapping[int, Sequence[int]]) -> list[int] | None:
    """The first cycle, from a job back to itself; None: there is none. Any depth, in linear time."""
    done: set[int] = set()
    for root in parents:
        path: list[int] = []
        on_path: set[int] = set()
        todo: list[tuple[int, bool]] = [(root, False)]
        while todo:
            node, is_finished = todo.pop()
            if is_finished:
                on_path.discard(path.pop())
                done.add(node)
            elif node in on_path:
                return [*path[path.index(node) :], node]
            elif node not in done:
                path.append(node)
                on_path.add(node)
                todo.append((node, True))
                todo += [(parent, False) for parent in parents.get(node, ())]
    return None


_MAX_BEGIN_SECONDS = 10 * 366 * 86400
_END_VERBS = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMED_OUT: "timed out",
    JobState.LOST: "was lost",
}


def _is_reference(part: object) -> bool:
    return (isinstance(part, int) and not isinstance(part, bool)) or isinstance(part, str)


def _reference(text: str) -> str:
    if not text or len(text) > _MAX_LENGTH or not text.isprintable():
        raise ValueError("name jobs by number: 12, [12, 13], array:5; or a job of the same request by its name")
    number = text.removeprefix(_ARRAY)
    if re.fullmatch(r"\d+", number, re.ASCII):
        if len(number) > 15 or int(number) == 0:
            raise ValueError(f"{number[:20]} is not a job number")
        return f"{_ARRAY if number != text else ''}{int(number)}"
    if number != text:
        raise ValueError(f"{text[:40]!a} is not an array; write array:5")
    return text
