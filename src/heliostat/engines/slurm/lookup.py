"""Finds in Slurm what is ours when its number is not known, or may be somebody else's by now.

Anybody may give a job any comment: whatever bears our mark must also be of the right user.
"""

import contextlib
from dataclasses import dataclass

from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.script import comment_of
from heliostat.models import AttemptId

_LONGEST_NUMBER = 20


@dataclass(frozen=True, slots=True)
class Lookup:
    commands: Commands
    instance: str

    def number_of(self, handed: Handed) -> int | None:
        """Of an attempt whose answer was lost: by its mark, or by what its script wrote when it began."""
        return self.marked_number_of(handed) or self._begun_number_of(handed)

    def marked_number_of(self, handed: Handed) -> int | None:
        return self._of_right_user(self._marked(handed.attempt.id, handed.uid), handed)

    def _begun_number_of(self, handed: Handed) -> int | None:
        numbers: list[int] = []
        with contextlib.suppress(OSError, ValueError), open(handed.begun, "rb") as file:
            numbers.append(int(file.read(_LONGEST_NUMBER)))  # the user's own file: it may hold anything
        return self._of_right_user(numbers, handed)

    def _of_right_user(self, numbers: list[int], handed: Handed) -> int | None:
        if not numbers:
            return None
        known = self.commands.jobs()
        if not known.keys() & set(numbers):
            known = self.commands.past_jobs(numbers)
        return next((number for number in numbers if number in known and known[number].uid == handed.uid), None)

    def orphans(self, attempt_id: AttemptId, uid: int, number: int | None) -> list[int]:
        """What of an attempt that nobody wants is still there. A new Slurm gives old numbers to others."""
        numbers = self._marked(attempt_id, uid)
        if number is not None and number not in numbers:
            numbers.append(number)
        known = self.commands.jobs()
        return [found for found in numbers if found in known and known[found].uid == uid]

    def _marked(self, attempt_id: AttemptId, uid: int) -> list[int]:
        return self.commands.numbers_with_comment(uid, comment_of(self.instance, attempt_id))
