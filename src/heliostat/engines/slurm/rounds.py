"""What is said to Slurm and heard from it, one thing after the other: called by one thread at a time.

Every method may raise EngineUnavailable in the middle. What was seen until then is in `told`, what was not done
is done by the next call.
"""

import contextlib
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands, SlurmRefused
from heliostat.engines.slurm.handed import Handed, limit_set_in_slurm, next_attempt, start_of
from heliostat.engines.slurm.lookup import Lookup
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.queue import Line
from heliostat.engines.slurm.script import Site, Unfit
from heliostat.engines.slurm.submission import begin_again, begun_path, prepared
from heliostat.engines.slurm.traces import Trace, Traces
from heliostat.engines.slurm.words import ending, may_pass, refusal_in_words
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, Cause, Ended, JobState, Observation, Retimed, Started, attempt_id

_VAIN_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost


class Rounds:
    def __init__(
        self, settings: Settings, commands: Commands, instance: str, accounts: SlurmAccounts | None = None
    ) -> None:
        self._settings, self._commands, self._accounts = settings, commands, accounts
        self._site = Site(instance, os.geteuid() == 0)
        self._lookup = Lookup(commands, instance)
        self.traces = Traces(settings.home.attempts)
        self.handed: dict[AttemptId, Handed] = {}
        self.over: dict[AttemptId, Ended] = {}  # until they are forgotten
        self.put_back: dict[AttemptId, Ended] = {}  # requeued by Slurm, until that is recorded
        self.jobs: Mapping[int, SlurmJob] = {}  # as of the newest look
        self.line = Line({})
        self._outbox: list[Observation] = []

    def told(self) -> list[Observation]:
        """What was seen since this was last asked."""
        told, self._outbox = self._outbox, []
        return told

    def known(self, attempt_id: AttemptId) -> list[Observation]:
        """What was told of it last."""
        handed = self.handed.get(attempt_id)
        newest = self.over.get(attempt_id) or self.put_back.get(attempt_id) or (handed.started if handed else None)
        return [] if newest is None else [newest]

    def submit(self, attempt: Attempt) -> None:
        """Noted before and after; if the answer was lost, Slurm is asked before it is handed over once more."""
        try:
            person = person_of(attempt.job.unix_user)
            ready = prepared(attempt, person, self._settings, self._site_for(attempt))
        except (Refused, Unfit) as error:
            self._end(attempt, Cause.REFUSED, str(error))
            return
        except OSError as error:
            self._end(attempt, Cause.NOT_STARTED, f"its files could not be made: {error.strerror}")
            return
        handed = Handed(attempt, ready.begun, person.uid)
        if self.traces.find(attempt.id) is not None:
            handed.number = self._lookup.number_of(handed)
        if handed.number is None:
            self.traces.put(attempt.id, Trace(person.uid))
            try:
                handed.number = self._commands.submit(ready.argv, ready.script)
            except SlurmRefused as error:
                cause = Cause.NOT_STARTED if may_pass(str(error)) else Cause.REFUSED
                self._end(attempt, cause, refusal_in_words(str(error)))
                return
        self.traces.put(attempt.id, Trace(person.uid, handed.number))
        self.handed[attempt.id] = handed

    def withdraw(self, attempt: Attempt) -> None:
        """Keep one that waits to be submitted from ever being so; if Slurm has it all the same, it is `handed`."""
        trace = self.traces.find(attempt.id)
        if trace is not None and trace.uid is not None:
            handed = Handed(attempt, begun_path(self._settings, attempt), trace.uid)
            handed.number = self._lookup.number_of(handed)
            if handed.number is not None:
                self.traces.put(attempt.id, Trace(trace.uid, handed.number))
                self.handed[attempt.id] = handed
                return
        self.traces.put(attempt.id, Trace(None))
        self._end(attempt, Cause.STOPPED)

    def take_up(self, attempt: Attempt) -> None:
        """What an earlier server handed over, or did not; where it left no number, `look` finds out."""
        if attempt.id in self.handed or attempt.id in self.over or attempt.id in self.put_back:
            return
        trace = self.traces.find(attempt.id)
        try:
            uid = person_of(attempt.job.unix_user).uid if trace is None else trace.uid
        except Refused:
            uid = None
        if uid is None:
            self._end(attempt, Cause.NOT_STARTED)
            return
        handed = Handed(attempt, begun_path(self._settings, attempt), uid, trace.number if trace else None)
        handed.was_tried = handed.number is None
        if trace is not None:
            handed.restarts, handed.first = trace.restarts, trace.first
        self.handed[attempt.id] = handed

    def look(self, types: Mapping[str, str], *, others: bool = False) -> None:
        """At everything that was handed over, with one question; if `others`, also when that is nothing.

        `types` are those of all devices by uuid.
        """
        for handed in list(self.handed.values()):
            self._settle(handed)
        if not (self.handed or others):
            return
        jobs = self.jobs = self._commands.jobs()
        self.line = Line(jobs)
        unseen = [handed for handed in self.handed.values() if handed.number not in jobs]
        for handed in list(self.handed.values()):
            if handed.number in jobs:
                self._follow(handed, jobs[handed.number], types)
        numbers = [handed.number for handed in unseen if handed.number]
        try:
            past = self._commands.past_jobs(numbers) if numbers else {}
        except EngineUnavailable:
            return  # the accounting is away, Slurm itself is not: it is asked again
        for handed in unseen:
            self._follow(handed, past.get(handed.number or 0), types)

    def send_signals(self) -> None:
        """To those who are to stop. Of one that the last look has not seen as ours, the number means nothing."""
        now = time.monotonic()
        for handed in list(self.handed.values()):
            if handed.is_over_limit(_now()):
                handed.ask_to_stop(Cause.TIMED_OUT, "TERM", now + handed.attempt.job.spec.grace_seconds)
            if handed.number is not None and handed.stopped_as is not None and not handed.looks_in_vain:
                self._send(handed, handed.number, now)

    def cancel_orphan(self, attempt_id: AttemptId) -> None:
        """Take out of Slurm what nobody wants any more."""
        trace = self.traces.find(attempt_id)
        if trace is not None and trace.uid is not None:
            wanted = {handed.number for handed in self.handed.values()}
            for number in self._lookup.orphans(attempt_id, trace.uid, trace.number):
                if number not in wanted:  # else it was requeued, and is a later attempt now
                    self._commands.cancel(number)
        self.traces.remove([attempt_id])

    def _site_for(self, attempt: Attempt) -> Site:
        if self._accounts is None:
            return self._site
        return replace(self._site, account=self._accounts.account_for(attempt.job.unix_user, attempt.job.project))

    def forget(self, attempt_id: AttemptId) -> None:
        """Its end is recorded. If it was requeued, the next attempt may be told of from now on."""
        self.over.pop(attempt_id, None)
        if self.put_back.pop(attempt_id, None) is not None and (after := self.successor_of(attempt_id)):
            self._note(after)
            after.former = None
        self.traces.remove([attempt_id])

    def successor_of(self, attempt_id: AttemptId) -> Handed | None:
        return next((handed for handed in list(self.handed.values()) if handed.former == attempt_id), None)

    def _note(self, handed: Handed) -> None:
        trace = Trace(handed.uid, handed.number, handed.restarts, handed.first)
        self.traces.put(handed.attempt.id, trace)

    def _settle(self, handed: Handed) -> None:
        """Whether Slurm has what an earlier server was about to hand over."""
        if not handed.was_tried:
            return
        attempt = handed.attempt
        handed.number = self._lookup.marked_number_of(handed)
        if handed.number is None and self._is_former_requeued(handed):
            handed.was_tried = False
            return
        handed.number = handed.number or self._lookup.number_of(handed)
        handed.was_tried = False
        if handed.number is not None:
            self.traces.put(attempt.id, Trace(handed.uid, handed.number))
            return
        self.traces.put(attempt.id, Trace(None))
        self._end(attempt, Cause.LOST if attempt.job.state is JobState.RUNNING else Cause.NOT_STARTED)

    def _is_former_requeued(self, handed: Handed) -> bool:
        """A server was killed after it had recorded that, and before it had noted the number anew."""
        job = handed.attempt.job
        former = attempt_id(job.id, job.attempt - 1)
        trace = self.traces.find(former)
        found = self._commands.jobs().get(trace.number) if trace and trace.number else None
        if trace is None or found is None or found.uid != handed.uid or found.is_over:
            return False
        if found.place.restarts <= trace.restarts:
            return False
        handed.number, handed.restarts = trace.number, found.place.restarts
        handed.first = trace.first or job.attempt - 1
        self._note(handed)
        self.traces.remove([former])
        return True

    def _put_back(self, handed: Handed, job: SlurmJob) -> None:
        """Slurm has it again, under the same number: that is the next attempt."""
        before, after = handed.attempt, next_attempt(handed.attempt)
        again = Handed(after, begun_path(self._settings, after), handed.uid, handed.number, former=before.id)
        again.restarts, again.first = job.place.restarts, handed.first or before.job.attempt
        with contextlib.suppress(OSError, Refused):  # then both attempts have the same output
            person = person_of(before.job.unix_user)
            begin_again(self._settings, after, again.first, person, runs=not job.is_waiting)
        del self.handed[before.id]
        self.handed[after.id] = again
        end = Ended(before.id, _now(), Cause.REQUEUED, detail="requeued by Slurm, or with Slurm's own tools")
        self.put_back[before.id] = end
        self._outbox.append(end)

    def _retime(self, handed: Handed, job: SlurmJob) -> None:
        """Somebody has changed its limit: that is its limit from now on."""
        if (found := limit_set_in_slurm(handed.attempt, job)) is None:
            return
        attempt = handed.attempt
        handed.attempt = replace(attempt, job=replace(attempt.job, time_limit_seconds=found[0]))
        self._outbox.append(Retimed(attempt.id, _now(), found[0]))

    def _follow(self, handed: Handed, job: SlurmJob | None, types: Mapping[str, str]) -> None:
        if job is None or job.uid != handed.uid:
            self._miss(handed)
            return
        handed.looks_in_vain = 0
        handed.runs = not job.is_waiting and not job.is_over
        handed.note_pause(job, _now())
        if handed.former is not None:
            return
        if handed.was_requeued(job):
            self._put_back(handed, job)
            return
        self._retime(handed, job)
        if job.is_waiting:
            handed.started = None  # it is being stopped, and was requeued all the same
        if job.has_run and handed.started is None:
            handed.started = self._start_of(handed.attempt, job, types)
            self._outbox.append(handed.started)
        if job.is_over:
            self._tell_end(ending(handed.attempt, job, handed.stopped_as))

    def _start_of(self, attempt: Attempt, job: SlurmJob, types: Mapping[str, str]) -> Started:
        devices = self._commands.devices(job) if attempt.job.resources.gpus and not job.is_over else {}
        return start_of(attempt, job, devices, types, _now())

    def _miss(self, handed: Handed) -> None:
        handed.looks_in_vain += 1
        if handed.looks_in_vain >= _VAIN_LOOKS:
            self._end(handed.attempt, Cause.LOST, "Slurm no longer knows it")

    def _send(self, handed: Handed, number: int, now: float) -> None:
        is_late = handed.kill_at is not None and now >= handed.kill_at
        if not handed.runs or handed.is_suspended or (is_late and not handed.hears_signals):
            self._commands.cancel(number)
        elif is_late:
            self._commands.signal(number, "KILL")
        elif handed.signals and handed.hears_signals:
            for signal in handed.signals:
                self._commands.signal(number, signal)
            handed.signals.clear()

    def _end(self, attempt: Attempt, cause: Cause, detail: str | None = None) -> None:
        self._tell_end(Ended(attempt.id, _now(), cause, detail=detail))

    def _tell_end(self, end: Ended) -> None:
        self.over[end.attempt_id] = end
        self.handed.pop(end.attempt_id, None)
        self._outbox.append(end)


def _now() -> datetime:
    return datetime.now(UTC)
