"""Hands attempts to Slurm, once each: what is noted before and after, and what is done when an answer is lost.

Every method may raise EngineUnavailable in the middle. What was not done is done by the next call.
"""

import contextlib
import errno
import math
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.environment import Person
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.arrays import Chunk
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.handed import Handed
from heliostat.engines.slurm.lookup import Lookup
from heliostat.engines.slurm.numbers import ElementNumber
from heliostat.engines.slurm.patience import NotNow
from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.engines.slurm.reservations import reservation_option
from heliostat.engines.slurm.script import Site
from heliostat.engines.slurm.submission import array_prepared, files_made, prepared, receipt_path
from heliostat.engines.slurm.terms import Unfit, terms_of
from heliostat.engines.slurm.traces import Trace, Traces
from heliostat.engines.slurm.words import is_of_count, may_pass, refusal_in_words
from heliostat.models import Attempt, AttemptId, Cause, Ended, Observation

_PASSING = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE)
_DEPENDENCY_PROBLEM = "dependency problem"
_LATE_SECONDS = 180.0  # longer than any submission takes


class Handover:
    """What is in Slurm's hands, and the way there. Several attempts may be submitted at the same time."""

    def __init__(
        self, settings: Settings, commands: Commands, instance: str, accounts: SlurmAccounts | None = None
    ) -> None:
        self._settings, self._commands, self._accounts = settings, commands, accounts
        self.site = Site(instance, os.geteuid() == 0, terms_of(settings))
        self._lookup = Lookup(commands, instance)
        self.traces = Traces(settings.home.attempts)
        self.handed: dict[AttemptId, Handed] = {}
        self.over: dict[AttemptId, Ended] = {}  # until they are forgotten
        self._abandoned: dict[AttemptId, tuple[float, Trace]] = {}  # and until when they may come to Slurm late
        self._outbox: list[Observation] = []
        self._owners: dict[int, AttemptId] = {}  # of Slurm's numbers
        self._given_twice: set[int] = set()  # of these, what Slurm says may be of either
        self._first_noted_at = math.inf  # when the first of all we know was handed over, in seconds since 1970
        self.reservations: Collection[str] = ()  # that Slurm has
        self._earlier_parts: dict[int, int] = {}  # of arrays whose next part follows: Slurm's number of the last

    def submit_chunk(self, chunk: Chunk) -> None:
        follows = chunk.limit is not None and chunk.first.job.array_id in self._earlier_parts
        if len(chunk.elements) == 1 and not chunk.more and not follows:
            self.submit(chunk.first)
        else:
            self.submit_array(chunk)

    def submit(self, attempt: Attempt) -> None:
        """Noted before and after; if the answer was lost, Slurm is asked before it is handed over once more."""
        try:
            person = person_of(attempt.job.unix_user)
            ready = prepared(attempt, person, self._settings, self._site_for(attempt))
            argv = [*ready.argv, *self._reservation(attempt)]
        except (Refused, Unfit) as error:
            self._end(attempt, Cause.REFUSED, str(error))
            return
        except OSError as error:
            self._end(attempt, Cause.NOT_STARTED, _no_files(error))
            return
        handed = Handed(attempt, ready.receipt, person.uid)
        if self._find_again([handed]):
            return
        self.traces.put(attempt.id, Trace(person.uid))
        try:
            number = self._commands.submit(argv, ready.script)
        except SlurmRefused as error:
            self._refused([attempt], error)
        else:
            self._note(handed, number)

    def submit_array(self, chunk: Chunk) -> None:
        """As `submit`, all of them at once. Of an array with a limit, one part runs after the other."""
        try:
            person = person_of(chunk.first.job.unix_user)
        except Refused as error:
            self._end_all(chunk.attempts, Cause.REFUSED, str(error))
            return
        found = self._find_again([self._handed(attempt, person.uid) for attempt in chunk.attempts])
        broken = self._without_files([one for one in chunk.attempts if one.id not in found], person)
        left = chunk.without([*found, *broken])
        if left is None:
            return
        array_id = left.first.job.array_id or 0
        after = None if left.limit is None else self._earlier_parts.get(array_id)
        number = self._submit_elements(left, person, after)
        if number is None:
            return
        self._earlier_parts.pop(array_id, None)
        if left.more:
            self._earlier_parts[array_id] = number

    def withdraw(self, attempt: Attempt) -> None:
        """Keep one that waits to be submitted from ever being so; if Slurm has it all the same, it is `handed`."""
        trace = self.traces.find(attempt.id)
        if trace is not None and trace.uid is not None and self._find_again([self._handed(attempt, trace.uid)]):
            return
        self._abandon(attempt, trace)
        self._end(attempt, Cause.STOPPED)

    def cancel_late(self) -> None:
        """What was given up and came to Slurm all the same. It does not begin, but waits in its queue."""
        now = time.monotonic()
        self._abandoned = {one: (until, trace) for one, (until, trace) in self._abandoned.items() if now < until}
        if traces := {one: trace for one, (_, trace) in self._abandoned.items()}:
            ours = {handed.number for handed in self.handed.values()}
            self._commands.cancel(*(number for number in self._lookup.orphans(traces) if number not in ours))

    def _abandon(self, attempt: Attempt, tried: Trace | None) -> None:
        """It must never run: without its receipt it does not begin. `tried`: it may still come to Slurm."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(receipt_path(self._settings, attempt))
        if tried is not None:
            self._abandoned[attempt.id] = (time.monotonic() + _LATE_SECONDS, tried)
        self.traces.put(attempt.id, Trace(None))

    def _reservation(self, attempt: Attempt) -> list[str]:
        name = attempt.job.placement.reservation
        return [] if name is None else [reservation_option(name, self.reservations)]

    def _site_for(self, attempt: Attempt) -> Site:
        if self._accounts is None:
            return self.site
        return replace(self.site, account=self._accounts.account_for(attempt.job.unix_user, attempt.job.project))

    def _handed(self, attempt: Attempt, uid: int) -> Handed:
        return Handed(attempt, receipt_path(self._settings, attempt), uid)

    def _find_again(self, wanted: Sequence[Handed]) -> set[AttemptId]:
        """Those that Slurm has already, though its answer was lost."""
        traces = {handed.attempt.id: self.traces.find(handed.attempt.id) for handed in wanted}
        tried = [handed for handed in wanted if traces[handed.attempt.id] is not None]
        for handed in tried:
            trace = traces[handed.attempt.id]
            handed.element = trace.element if trace else None
        found = self._lookup.numbers_of(tried) if tried else {}
        for handed in tried:
            if handed.attempt.id in found:
                self._note(handed, found[handed.attempt.id])
        return set(found)

    def _without_files(self, attempts: Sequence[Attempt], person: Person) -> list[AttemptId]:
        """Makes the files of each; those of which they could not be made have ended."""
        broken: list[AttemptId] = []
        for attempt in attempts:
            try:
                files_made(attempt, person, self._settings)
            except OSError as error:
                self._end(attempt, Cause.NOT_STARTED, _no_files(error))
                broken.append(attempt.id)
            except Refused as error:
                self._end(attempt, Cause.REFUSED, str(error))
                broken.append(attempt.id)
        return broken

    def _submit_elements(self, chunk: Chunk, person: Person, after: int | None) -> int | None:
        """The number of the array; None: it was refused as a whole."""
        try:
            argv, script = array_prepared(chunk, person, self._settings, self._site_for(chunk.first))
            argv += self._reservation(chunk.first) + ([] if after is None else [f"--dependency=afterany:{after}"])
        except (Refused, Unfit) as error:
            self._end_all(chunk.attempts, Cause.REFUSED, str(error))
            return None
        for index, attempt in chunk.elements.items():
            self.traces.put(attempt.id, Trace(person.uid, element=chunk.element(index)))
        try:
            number = self._commands.submit(argv, script)
        except SlurmRefused as error:
            if _DEPENDENCY_PROBLEM in str(error).lower():  # Slurm has forgotten the part before this one
                self._earlier_parts.pop(chunk.first.job.array_id or 0, None)
            self._refused_together(chunk, error)
            return None
        for index, attempt in chunk.elements.items():
            self._note(self._handed(attempt, person.uid), ElementNumber.of(number, index))
        return number

    def _note(self, handed: Handed, number: int) -> None:
        """Slurm has it, under this number."""
        handed.number = number
        self._first_noted_at = min(self._first_noted_at, time.time())
        self._own(handed, number)
        self.handed[handed.attempt.id] = handed  # also if that cannot be noted: it is found again by its mark
        self.traces.put(handed.attempt.id, Trace(handed.uid, number, restarts=handed.restarts, first=handed.first))

    def _own(self, handed: Handed, number: int) -> None:
        """Slurm gives a number twice only if it has forgotten the job that had it."""
        before = self.handed.get(self._owners.get(number, ""))
        if before is not None and before is not handed and before.number == number:
            before.number = None
            self._given_twice.add(number)
        self._owners[number] = handed.attempt.id

    def _refused_together(self, chunk: Chunk, error: SlurmRefused) -> None:
        """If there are too many, as many as Slurm takes now. Jobs that only ask for the same are no array to their
        users: Slurm may take some of them."""
        in_halves = len(chunk.elements) > 1 and is_of_count(error)
        if chunk.is_array and not in_halves:
            self._refused(chunk.attempts, error)
            return
        self.traces.remove(attempt.id for attempt in chunk.attempts)
        for part in chunk.halves() if in_halves else chunk.singles():
            self.submit_chunk(part)

    def _refused(self, attempts: Sequence[Attempt], error: SlurmRefused) -> None:
        """What may pass is tried again without end."""
        words = refusal_in_words(error)
        if may_pass(error):
            self.traces.remove(attempt.id for attempt in attempts)
            raise NotNow(words) from error
        else:
            self._end_all(attempts, Cause.REFUSED, words)

    def _end_all(self, attempts: Sequence[Attempt], cause: Cause, detail: str) -> None:
        for attempt in attempts:
            self._end(attempt, cause, detail)

    def _end(self, attempt: Attempt, cause: Cause, detail: str | None = None) -> None:
        self._tell_end(Ended(attempt.id, datetime.now(UTC), cause, detail=detail))

    def _tell_end(self, end: Ended) -> None:
        self.over[end.attempt_id] = end
        gone = self.handed.pop(end.attempt_id, None)
        if gone is not None and gone.number is not None and self._owners.get(gone.number) == end.attempt_id:
            del self._owners[gone.number]
        self._outbox.append(end)


def _no_files(error: OSError) -> str:
    """Raises NotNow if that may pass."""
    why = f"its files could not be made: {error.strerror}"
    if error.errno in _PASSING:
        raise NotNow(why) from error
    return why
