"""What the server notes about each hand-over, on disk, so that a killed one leaves nothing doubled or lost.

`attempts/12.1.slurm` is made before the submission (`uid 1001`) and completed after it (`uid 1001 job 4711`;
`restarts 2 first 1` follows if it is the Slurm job of attempt 1, which was requeued twice since).
Of an element of an array it says first with whom it goes and as which element (`uid 1001 with 12.1 as 3`), and
later `uid 1001 job 4711_3`. An attempt that must never be submitted has `disowned`.
"""

import math
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.engines.slurm.numbers import read_number
from heliostat.models import AttemptId

_SUFFIX = ".slurm"
_DISOWNED = "disowned"
_TEXT = re.compile(
    r"uid (\d{1,10})(?: with (\d+\.\d+) as (\d{1,9}))?"
    r"(?: job ([\d_]{1,30})(?: restarts (\d{1,10}) first (\d{1,10}))?)?",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Element:
    """What an attempt is among those that are submitted with it, as one array of Slurm."""

    leader: AttemptId  # the first of them: its id marks them all
    index: int


@dataclass(frozen=True, slots=True)
class Trace:
    uid: int | None  # None: disowned
    number: int | None = None  # None: it is not known whether Slurm has it
    element: Element | None = None
    restarts: int = 0  # how often Slurm had requeued it when this attempt began to wait
    first: int | None = None  # the attempt it was submitted as, if that is another
    is_unreadable: bool = False  # then nothing is known: Slurm may have it

    @property
    def is_disowned(self) -> bool:
        return self.uid is None and not self.is_unreadable


def trace_in(text: str) -> Trace:
    found = _TEXT.fullmatch(text.strip())
    if found is None:
        return Trace(None, is_unreadable=text.strip() != _DISOWNED)
    uid, leader, index, number, restarts, first = found.groups()
    element = Element(leader, int(index)) if leader else None
    restarted, since = (int(restarts), int(first)) if first else (0, None)
    return Trace(int(uid), read_number(number or ""), element, restarted, since)


class Traces:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, attempt_id: AttemptId) -> Trace | None:
        try:
            text = self._path(attempt_id).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        return trace_in(text)

    def noted_at(self, attempt_id: AttemptId) -> float:
        """In seconds since 1970."""
        try:
            return self._path(attempt_id).stat().st_mtime
        except FileNotFoundError:
            return math.inf

    def put(self, attempt_id: AttemptId, trace: Trace) -> None:
        """All of it or nothing."""
        draft = self._folder / f"{attempt_id}.draft"
        draft.write_text(_text(trace) + "\n", encoding="utf-8")
        os.replace(draft, self._path(attempt_id))

    def remove(self, attempt_ids: Iterable[AttemptId]) -> None:
        for attempt_id in attempt_ids:
            self._path(attempt_id).unlink(missing_ok=True)

    def ids(self) -> Iterator[AttemptId]:
        return (path.name.removesuffix(_SUFFIX) for path in self._folder.glob(f"*{_SUFFIX}"))

    def _path(self, attempt_id: AttemptId) -> Path:
        return self._folder / f"{attempt_id}{_SUFFIX}"


def _text(trace: Trace) -> str:
    if trace.uid is None:
        return _DISOWNED
    element = trace.element
    place = "" if element is None else f" with {element.leader} as {element.index}"
    job = "" if trace.number is None else f" job {trace.number}"
    again = f" restarts {trace.restarts} first {trace.first}" if job and trace.first is not None else ""
    return f"uid {trace.uid}{place}{job}{again}"
