"""Jobs that wait for other jobs: the rules, and what becomes of a child when its parent is over. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from heliostat.models.states import TERMINAL_STATES, JobState

MAX_PARENTS = 10_000  # that one job may name
MAX_DEPENDENCIES_PER_REQUEST = 100_000  # of a job and one it waits for, in one request
_LONGEST = 200  # characters of one reference
_ARRAY = "array:"


class DependencyCondition(StrEnum):
    """How a parent must end for its child to start. If it ends otherwise, the child is cancelled."""

    OK = "ok"  # it completes
    ANY = "any"  # it is over, however
    FAILED = "failed"  # it is over, and has not completed
    BUILT = "built"  # it completes: the environment the child runs in is there
    WORKFLOW_DECIDES = "decided"  # it is over; what that means for the child, their workflow decides

    def is_met_by(self, state: JobState) -> bool:
        """By a parent that has ended like this."""
        if self in (DependencyCondition.ANY, DependencyCondition.WORKFLOW_DECIDES):
            return state in TERMINAL_STATES
        return state in TERMINAL_STATES and (state is JobState.COMPLETED) == (
            self is not DependencyCondition.FAILED
        )


@dataclass(frozen=True, slots=True)
class Dependency:
    """A job does not start before this one is over, and only if that ended as the rule says."""

    parent_id: int
    condition: DependencyCondition = DependencyCondition.OK


@dataclass(frozen=True, slots=True)
class ParentReference:
    """A parent as a request names it: `12`, `array:5`, or the name of another job of the same request."""

    reference: str
    rule: DependencyCondition = DependencyCondition.OK
    each: bool = False  # of an array: each element waits for the one of the same index only

    @property
    def job_id(self) -> int | None:
        return int(self.reference) if self.reference.isdecimal() else None

    @property
    def array_id(self) -> int | None:
        number = self.reference.removeprefix(_ARRAY)
        return int(number) if number != self.reference and number.isdecimal() else None


def parse_parents(value: object) -> tuple[str, ...]:
    """`12`, `"12, array:5"` or a list of such: each reference once. Raises ValueError with a sentence."""
    parts = value if isinstance(value, list | tuple) else str(value).split(",") if _is_one(value) else None
    if parts is None or not all(_is_one(part) for part in parts):
        raise ValueError("name jobs by number: 12, [12, 13], array:5; or a job of the same request by its name")
    if len(parts) > MAX_PARENTS:
        raise ValueError(f"a job may wait for {MAX_PARENTS} others, not for {len(parts)}")
    return tuple(dict.fromkeys(_reference(str(part).strip()) for part in parts))


def parse_begin(text: str) -> datetime | timedelta:
    """`2026-12-01T08:00`, in UTC unless it says otherwise, or `+2h` from when it is submitted."""
    from heliostat.models.quantities import parse_duration

    text = text.strip()[: _LONGEST + 1]
    if text.startswith("+"):
        seconds = parse_duration(text[1:])
        if seconds > _FURTHEST_SECONDS:
            raise ValueError("that is more than ten years from now")
        return timedelta(seconds=seconds)
    try:
        at = datetime.fromisoformat(text)
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        is_near = 2000 <= at.year < 2200
    except (ValueError, OverflowError):
        is_near = False
    if not is_near:
        raise ValueError(f"{text[:40]!a} is not a time; write 2026-12-01T08:00, or +2h for in two hours")
    return at


def format_begin(begin: datetime | timedelta) -> str:
    """As `parse_begin` reads it."""
    if isinstance(begin, timedelta):
        return f"+{int(begin.total_seconds())}s"
    return begin.isoformat().replace("+00:00", "Z")


def describe_end(state: JobState) -> str:
    """What has become of a job, to stand behind its number."""
    return _ENDED.get(state, state.value.replace("_", " "))


def describe_broken_dependency(parent: int, state: JobState) -> str:
    """Why a child can no longer start."""
    return f"job {parent}, which it waited for, {describe_end(state)}"


def find_cycle(parents: Mapping[int, Sequence[int]]) -> list[int] | None:
    """The first way round, from a node back to itself; None: there is none. Any depth, in linear time."""
    done: set[int] = set()
    for root in parents:
        path: list[int] = []
        on_path: set[int] = set()
        todo: list[tuple[int, bool]] = [(root, False)]
        while todo:
            node, is_left = todo.pop()
            if is_left:
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


_FURTHEST_SECONDS = 10 * 366 * 86400
_ENDED = {
    JobState.COMPLETED: "completed",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "was cancelled",
    JobState.TIMED_OUT: "ran out of time",
    JobState.LOST: "was lost",
}


def _is_one(part: object) -> bool:
    return (isinstance(part, int) and not isinstance(part, bool)) or isinstance(part, str)


def _reference(text: str) -> str:
    if not text or len(text) > _LONGEST or not text.isprintable():
        raise ValueError("name jobs by number: 12, [12, 13], array:5; or a job of the same request by its name")
    number = text.removeprefix(_ARRAY)
    if re.fullmatch(r"\d+", number, re.ASCII):
        if len(number) > 15 or int(number) == 0:
            raise ValueError(f"{number[:20]} is not the number of a job")
        return f"{_ARRAY if number != text else ''}{int(number)}"
    if number != text:
        raise ValueError(f"{text[:40]!a} is not an array; write array:5")
    return text
