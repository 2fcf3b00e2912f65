"""What is said to Slurm and heard from it, one thing after the other: called by one thread at a time.

Every method may raise EngineUnavailable in the middle. What was seen until then is in `told`, what was not done
is done by the next call.
"""

import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.arrays import arrays_among, taken_out
from heliostat.engines.slurm.associations import SlurmAccounts
from heliostat.engines.slurm.commands import Commands
from heliostat.engines.slurm.contained import heard_as
from heliostat.engines.slurm.handed import Handed, start_of
from heliostat.engines.slurm.live import Running
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.queue import Line
from heliostat.engines.slurm.receipts import read_receipt
from heliostat.engines.slurm.requeues import Requeues
from heliostat.engines.slurm.traces import Trace
from heliostat.engines.slurm.words import Known, ending, ending_by_receipt, was_killed
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, AttemptId, Cause, JobState, Observation, Place, Started
from heliostat.server_log import get_logger

log = get_logger()
_VAIN_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost
_LOOKS_FOR_ENDED = 3  # the same of one that notes its own end: the accounting may be a moment behind
_FORGETFUL_SECONDS = 60.0  # after its start, in which Slurm kills what it finds on nodes and does not remember


class Rounds(Requeues):
    def __init__(
        self, settings: Settings, commands: Commands, instance: str, accounts: SlurmAccounts | None = None
    ) -> None:
        super().__init__(settings, commands, instance, accounts)
        self.jobs: Mapping[int, SlurmJob] = {}  # as of the newest look
        self.line = Line({})
        self.look_seconds = 0.0  # from one look to the next, unless a job has noted something
        self._is_alone = False  # nothing of an earlier server is on its way to Slurm any more

    def told(self) -> list[Observation]:
        """What was seen since this was last asked."""
        told, self._outbox = self._outbox, []
        return told

    def known(self, attempt_id: AttemptId) -> list[Observation]:
        """What was told of it last."""
        handed = self.handed.get(attempt_id)
        newest = self.over.get(attempt_id) or self.put_back.get(attempt_id) or (handed.started if handed else None)
        return [] if newest is None else [newest]

    def running(self) -> dict[AttemptId, Running]:
        """Those that run, as of the newest look. Others may ask too."""
        found: dict[AttemptId, Running] = {}
        for handed in list(self.handed.values()):
            if handed.runs and handed.number is not None and handed.hears_signals:
                job = handed.attempt.job
                found[handed.attempt.id] = Running(handed.number, job.resources.devices * job.placement.tasks)
        return found

    def take_up(self, attempt: Attempt) -> None:
        """What an earlier server handed over, or did not; where it left no number, `look` finds out."""
        if attempt.id in self.handed or attempt.id in self.over or attempt.id in self.put_back:
            return
        trace = self.traces.find(attempt.id)
        try:
            if trace is None or trace.is_unreadable:
                uid: int | None = person_of(attempt.job.unix_user).uid
            else:
                uid = trace.uid
        except Refused:
            uid = None
        if uid is None:
            self._end(attempt, Cause.NOT_STARTED)
            return
        handed = self._handed(attempt, uid)
        if trace is not None:
            handed.number, handed.element = trace.number, trace.element
            self._first_noted_at = min(self._first_noted_at, self.traces.noted_at(attempt.id))
            handed.waits = attempt.job.state is JobState.PENDING
            handed.restarts, handed.first = trace.restarts, trace.first
        handed.was_tried = handed.number is None
        if handed.number is not None:
            self._own_as_noted(handed, handed.number)
        self.handed[attempt.id] = handed

    def _own_as_noted(self, handed: Handed, number: int) -> None:
        """Of two whom an earlier server noted under one number, Slurm has the one that was noted last."""
        before = self.handed.get(self._owners.get(number, ""))
        noted_at = self.traces.noted_at
        if before is not None and noted_at(before.attempt.id) > noted_at(handed.attempt.id):
            handed.number = None
            self._given_twice.add(number)
            return
        self._own(handed, number)

    def look(self, types: Mapping[str, str], *, others: bool = False) -> None:
        """At everything that was handed over, with one question; if `others`, also when that is nothing.

        `types` are those of all devices by uuid.
        """
        self._settle()
        if not (self.handed or others):
            return
        ours = [handed.number for handed in self.handed.values() if handed.number is not None]
        jobs = self.jobs = self._commands.jobs(ours)
        self.line = Line(jobs)
        unseen = [one for one in self.handed.values() if one.number not in jobs and not one.was_tried]
        for handed in list(self.handed.values()):
            if handed.number in jobs:
                self._follow(handed, jobs[handed.number], types)
        numbers = [handed.number for handed in unseen if handed.number]
        try:
            past = self._commands.past_jobs(numbers) if numbers else {}
        except EngineUnavailable:
            return  # the accounting is away, Slurm itself is not: it is asked again
        arrays = arrays_among(jobs) if unseen else {}
        for handed in unseen:
            known = _closed(handed, past.get(handed.number or 0))
            self._follow(handed, known or taken_out(handed, jobs, arrays), types)

    def send_signals(self) -> None:
        """To those who are to stop. Of one that the last look has not seen as ours, the number means nothing."""
        now = time.monotonic()
        for handed in self.handed.values():
            if handed.is_over_limit(_now()):
                handed.ask_to_stop(Cause.TIMED_OUT, "TERM", now + handed.attempt.job.spec.grace_seconds)
        to_stop = [
            (handed, handed.number)
            for handed in self.handed.values()
            if handed.number is not None and handed.stopped_as is not None and not handed.looks_in_vain
        ]
        waiting = [number for handed, number in to_stop if not handed.runs]
        running = [self._send(handed, number, now) for handed, number in to_stop if handed.runs]
        self._commands.cancel(*waiting, *(number for numbers in running for number in numbers))

    def cancel_orphans(self, attempt_ids: Collection[AttemptId]) -> None:
        """Take out of Slurm what nobody wants any more; their traces are left."""
        traces = {attempt_id: trace for attempt_id in attempt_ids if (trace := self.traces.find(attempt_id))}
        wanted = {handed.number for handed in self.handed.values()}  # of one that was requeued, by a later attempt
        self._commands.cancel(*(number for number in self._lookup.orphans(traces) if number not in wanted))

    @property
    def is_alone(self) -> bool:
        """Nothing that an earlier server has submitted can still come to Slurm. For whoever has the turn."""
        self._is_alone = self._is_alone or not self._commands.has_earlier_submissions()
        return self._is_alone

    def _settle(self) -> None:
        """Whether Slurm has what an earlier server was about to hand over, once that cannot change any more."""
        tried = [handed for handed in self.handed.values() if handed.was_tried]
        if not tried or not self.is_alone:
            return
        found = self._lookup.numbers_of(tried, written=False)
        jobs = self._commands.jobs()
        left = [one for one in tried if one.attempt.id not in found and not self._is_former_requeued(one, jobs)]
        found |= self._lookup.numbers_of(left) if left else {}
        for handed in tried:
            handed.was_tried = False
            if (number := found.get(handed.attempt.id)) is not None:
                self._note(handed, number)
            elif handed in left and not read_receipt(handed.receipt).has_begun:
                self._disown(handed)

    def _disown(self, handed: Handed) -> None:
        """It never came to Slurm, and must not any more."""
        self._abandon(handed.attempt, Trace(handed.uid, element=handed.element))
        self._end(handed.attempt, Cause.NOT_STARTED)

    def _follow(self, handed: Handed, job: SlurmJob | None, types: Mapping[str, str]) -> None:
        """An error with one of them keeps nobody from seeing the others."""
        try:
            self._follow_one(handed, job, types)
        except EngineUnavailable:
            raise
        except Exception:
            log.exception("slurm_attempt_not_followed", attempt=handed.attempt.id)

    def _follow_one(self, handed: Handed, job: SlurmJob | None, types: Mapping[str, str]) -> None:
        if job is None or job.uid != handed.uid or _is_anothers(handed, job):
            self._miss(handed)
            return
        handed.looks_in_vain = 0
        handed.waits, handed.runs = job.is_waiting, not job.is_waiting and not job.is_over
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
            known = Known(handed.stopped_as, read_receipt(handed.receipt), self._is_forgetful(handed, job))
            self._tell_end(ending(handed.attempt, job, known))

    def _start_of(self, attempt: Attempt, job: SlurmJob, types: Mapping[str, str]) -> Started:
        devices = self._commands.devices(job) if attempt.job.resources.gpus and not job.is_over else {}
        return start_of(attempt, job, devices, types, _now())

    def _miss(self, handed: Handed) -> None:
        """Slurm does not know it, or no longer; what it noted itself counts then."""
        now = time.monotonic()
        handed.vain_since = now if handed.looks_in_vain == 0 else handed.vain_since
        handed.looks_in_vain += 1
        receipt = read_receipt(handed.receipt)
        looks = _LOOKS_FOR_ENDED if receipt.has_ended else _VAIN_LOOKS
        if handed.looks_in_vain < looks or now - handed.vain_since < (looks - 1) * self.look_seconds:
            return
        if handed.started is None and receipt.has_begun:
            places = (Place(receipt.node),) * handed.attempt.job.placement.tasks
            self._outbox.append(Started(handed.attempt.id, receipt.noted_at or _now(), places))
        end = ending_by_receipt(handed.attempt, receipt)
        stopped = handed.stopped_as if end.cause is not Cause.EXITED else None
        self._tell_end(end if stopped is None else replace(end, cause=stopped, detail=None))

    def _is_forgetful(self, handed: Handed, job: SlurmJob) -> bool:
        """Nobody of ours stopped it, and Slurm's controller, which had jobs of ours, had just begun anew."""
        if not was_killed(job) or handed.stopped_as is not None:
            return False
        if job.number in self._given_twice:
            return True  # it ends the one that it has forgotten, on the node, and takes that for this one's end
        booted_at, ended_at = self._commands.booted_at(), job.ended_at or _now()
        if booted_at is None or booted_at.timestamp() < self._first_noted_at:
            return False
        return 0 <= (ended_at - booted_at).total_seconds() < _FORGETFUL_SECONDS

    def _send(self, handed: Handed, number: int, now: float) -> list[int]:
        """What is to be cancelled; anything else is sent at once."""
        is_late = handed.kill_at is not None and now >= handed.kill_at
        if handed.is_suspended or (is_late and not handed.hears_signals):
            return [number]
        if is_late:
            self._commands.signal(number, "KILL")
        elif handed.signals and handed.hears_signals:
            for signal in handed.signals:
                self._commands.signal(number, heard_as(signal, handed.attempt.job.spec))
            handed.signals.clear()
        return []


def _closed(handed: Handed, job: SlurmJob | None) -> SlurmJob | None:
    """What the accounting knows of one that is in no queue; not that it still runs, if it has noted its own end: a
    controller that was killed may never tell the accounting."""
    is_open = job is not None and not job.is_over
    return None if is_open and read_receipt(handed.receipt).has_ended else job


def _is_anothers(handed: Handed, job: SlurmJob) -> bool:
    """Its number is that of another job of this user, which has ended well: ours would have noted its end. One
    that noted its begin under this number is ours: its disk may have been full at its end."""
    receipt = read_receipt(handed.receipt)
    return job.state == "COMPLETED" and not receipt.has_ended and receipt.number != job.number


def _now() -> datetime:
    return datetime.now(UTC)
