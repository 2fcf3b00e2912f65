"""What is said to Slurm and heard from it, one thing after the other: called by one thread at a time.

Every method may raise EngineUnavailable in the middle. What was seen until then is in `told`, what was not done
is done by the next call.
"""

import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.commands import Commands, SlurmRefused
from heliostat.engines.slurm.handed import Handed, start_of
from heliostat.engines.slurm.lookup import Lookup
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.script import Site, Unfit
from heliostat.engines.slurm.submission import begun_path, prepared
from heliostat.engines.slurm.traces import Trace, Traces
from heliostat.engines.slurm.words import ending, may_pass, refusal_in_words, waiting_in_words
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, Cause, Ended, JobState, Observation, Started

_VAIN_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost


class Rounds:
    def __init__(self, settings: Settings, commands: Commands, instance: str) -> None:
        self._settings, self._commands = settings, commands
        self._site = Site(instance, os.geteuid() == 0)
        self._lookup = Lookup(commands, instance)
        self.traces = Traces(settings.home.attempts)
        self.handed: dict[AttemptId, Handed] = {}
        self.over: dict[AttemptId, Ended] = {}  # until they are forgotten
        self._outbox: list[Observation] = []

    def told(self) -> list[Observation]:
        """What was seen since this was last asked."""
        told, self._outbox = self._outbox, []
        return told

    def known(self, attempt_id: AttemptId) -> list[Observation]:
        """What was told of it last."""
        handed = self.handed.get(attempt_id)
        newest = self.over.get(attempt_id) or (handed.started if handed else None)
        return [] if newest is None else [newest]

    def submit(self, attempt: Attempt) -> None:
        """Noted before and after; if the answer was lost, Slurm is asked before it is handed over once more."""
        try:
            person = person_of(attempt.job.unix_user)
            ready = prepared(attempt, person, self._settings, self._site)
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
        if attempt.id in self.handed or attempt.id in self.over:
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
        self.handed[attempt.id] = handed

    def look(self, types: Mapping[str, str]) -> None:
        """At everything that was handed over, with one question. `types` are those of all devices by uuid."""
        for handed in list(self.handed.values()):
            self._settle(handed)
        if not self.handed:
            return
        jobs = self._commands.jobs()
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
        """Take out of Slurm what nobody wants any more; its trace is left."""
        trace = self.traces.find(attempt_id)
        if trace is not None and trace.uid is not None:
            for number in self._lookup.orphans(attempt_id, trace.uid, trace.number):
                self._commands.cancel(number)

    def _settle(self, handed: Handed) -> None:
        """Whether Slurm has what an earlier server was about to hand over."""
        if not handed.was_tried:
            return
        handed.number = self._lookup.number_of(handed)
        handed.was_tried = False
        attempt = handed.attempt
        if handed.number is not None:
            self.traces.put(attempt.id, Trace(handed.uid, handed.number))
            return
        self.traces.put(attempt.id, Trace(None))
        self._end(attempt, Cause.LOST if attempt.job.state is JobState.RUNNING else Cause.NOT_STARTED)

    def _follow(self, handed: Handed, job: SlurmJob | None, types: Mapping[str, str]) -> None:
        if job is None or job.uid != handed.uid:
            self._miss(handed)
            return
        handed.looks_in_vain = 0
        handed.runs = not job.is_waiting and not job.is_over
        handed.reason = waiting_in_words(job.reason) if job.is_waiting else None
        if job.is_waiting:
            handed.started = None  # requeued with Slurm's own tools: its time begins anew
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
        if not handed.runs or (is_late and not handed.hears_signals):
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
