"""Finds in Slurm what is ours when its number is not known, or may be somebody else's by now.

Anybody may give a job any comment: whatever bears our mark must also be of the right user, and the comments of
each user are asked for alone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.numbers import ElementNumber
from heliostat.engines.slurm.receipts import read_receipt
from heliostat.engines.slurm.script import array_comment_of, comment_of
from heliostat.engines.slurm.traces import Element, Trace
from heliostat.models import AttemptId

_Marks = Mapping[int, Mapping[str, Sequence[int]]]  # by uid and comment


@dataclass(frozen=True, slots=True)
class Lookup:
    commands: Commands
    instance: str

    def numbers_of(self, lost: Sequence[Handed], *, written: bool = True) -> dict[AttemptId, int]:
        """Of attempts whose answer was lost: by their mark, and by what their script wrote when it began."""
        marks = self._marks(handed.uid for handed in lost)
        hints = {
            handed.attempt.id: self._marked(marks, handed.attempt.id, handed.uid, handed.element)
            + (_written(handed) if written else [])
            for handed in lost
        }
        if not any(hints.values()):
            return {}
        known = self.commands.jobs()
        unseen = [number for numbers in hints.values() if not known.keys() & set(numbers) for number in numbers]
        known |= self.commands.past_jobs(unseen) if unseen else {}
        found: dict[AttemptId, int] = {}
        for handed in lost:
            numbers = [one for one in hints[handed.attempt.id] if one in known and known[one].uid == handed.uid]
            found |= {handed.attempt.id: numbers[0]} if numbers else {}
        return found

    def orphans(self, traces: Mapping[AttemptId, Trace]) -> list[int]:
        """What of attempts that nobody wants is still there. A new Slurm gives old numbers to others."""
        marks = self._marks(trace.uid for trace in traces.values() if trace.uid is not None)
        known = self.commands.jobs() if marks else {}
        found: dict[int, None] = {}
        for attempt_id, trace in traces.items():
            if trace.uid is None:
                continue
            numbers = self._marked(marks, attempt_id, trace.uid, trace.element)
            numbers += [] if trace.number is None else [trace.number]
            found |= dict.fromkeys(one for one in numbers if one in known and known[one].uid == trace.uid)
        return list(found)

    def _marks(self, uids: Iterable[int]) -> _Marks:
        found: dict[int, dict[str, list[int]]] = {}
        for uid in set(uids):
            found[uid] = defaultdict(list)
            for number, comment in self.commands.comments_of(uid):
                found[uid][comment].append(number)
        return found

    def _marked(self, marks: _Marks, attempt_id: AttemptId, uid: int, element: Element | None) -> list[int]:
        alone = list(marks[uid].get(comment_of(self.instance, attempt_id), ()))
        if element is None:
            return alone
        together = marks[uid].get(array_comment_of(self.instance, element.leader), ())
        return alone + [one for one in together if isinstance(one, ElementNumber) and one.index == element.index]


def _written(handed: Handed) -> list[int]:
    number = read_receipt(handed.receipt).number
    return [] if number is None else [number]
