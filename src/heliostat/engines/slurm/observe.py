"""What becomes of our jobs in Slurm, seen with one question for all; and signals to those that are to stop.

Called by one thread at a time.

Every method may raise EngineUnavailable in the middle. What was seen until then is told, what was not done is done
by the next call.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.folders import Refused, person_of
from heliostat.engines.slurm.arrays import arrays_among, taken_out
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.containers import heard_as
from heliostat.engines.slurm.explain import QueueOrder
from heliostat.engines.slurm.journal import JournalEntry, read_receipt
from heliostat.engines.slurm.mapping import Known, Unfit, ending, ending_by_receipt, was_killed
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.script import limit_minutes
from heliostat.engines.slurm.submit import Submitter, begin_again, new_tracked
from heliostat.engines.slurm.tracked_job import (
    TrackedJob,
    TrackedJobs,
    limit_set_in_slurm,
    next_attempt,
    start_of,
)
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt, Cause, Ended, Place, Retimed, Started, attempt_id
from heliostat.server_log import get_logger

log = get_logger()
_VAIN_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost
_LOOKS_FOR_ENDED = 3  # the same of one that notes its own end: the accounting may be a moment behind
_FORGETFUL_SECONDS = 60.0  # after its start, in which Slurm kills what it finds on nodes and does not remember


class Observer:
    """Tells of tracked jobs what has changed since the last look."""

    def __init__(
        self,
        settings: Settings,
        client: SlurmClient,
        tracked: TrackedJobs,
        cluster: ClusterState,
        submitter: Submitter,
    ) -> None:
        self._settings, self._client, self._submitter = settings, client, submitter
        self._tracked, self._cluster = tracked, cluster
        self.queue: Mapping[int, SlurmJob] = {}  # as of the newest look
        self.order = QueueOrder({})
        self.look_seconds = 0.0  # from one look to the next, unless a job has noted something

    def take_up(self, attempt: Attempt) -> None:
        """What an earlier server handed over, or did not; where it left no number, `look` finds out."""
        known = self._tracked
        if attempt.id in known.jobs or attempt.id in known.over or attempt.id in known.requeued:
            return
        entry = known.journal.find(attempt.id)
        try:
            if entry is None or entry.is_unreadable:
                uid: int | None = person_of(attempt.job.unix_user).uid
            else:
                uid = entry.uid
        except Refused:
            uid = None
        if uid is None:
            known.end(attempt, Cause.NOT_STARTED)
            return
        known.take_up(new_tracked(self._settings, attempt, uid), entry)

    def look(self, *, others: bool = False) -> None:
        """At everything that was handed over, with one question; if `others`, also when that is nothing."""
        self._settle()
        if not (self._tracked.jobs or others):
            return
        jobs = self.queue = self._client.jobs(self._tracked.numbers)
        self.order = QueueOrder(jobs)
        unseen = [one for one in self._tracked.jobs.values() if one.number not in jobs and not one.was_tried]
        for tracked in list(self._tracked.jobs.values()):
            if tracked.number in jobs:
                self._follow(tracked, jobs[tracked.number])
        numbers = [tracked.number for tracked in unseen if tracked.number]
        try:
            past = self._client.past_jobs(numbers) if numbers else {}
        except EngineUnavailable:
            return  # the accounting is away, Slurm itself is not: it is asked again
        arrays = arrays_among(jobs) if unseen else {}
        for tracked in unseen:
            known = _closed(tracked, past.get(tracked.number or 0))
            self._follow(tracked, known or taken_out(tracked, jobs, arrays))

    def send_signals(self) -> None:
        """To those that are to stop. Of one that the last look has not seen as ours, the number means nothing."""
        now = time.monotonic()
        for tracked in self._tracked.jobs.values():
            if tracked.is_over_limit(_now()):
                tracked.ask_to_stop(Cause.TIMED_OUT, "TERM", now + tracked.attempt.job.spec.grace_seconds)
        to_stop = [
            (tracked, tracked.number)
            for tracked in self._tracked.jobs.values()
            if tracked.number is not None and tracked.stopped_as is not None and not tracked.looks_in_vain
        ]
        waiting = [number for tracked, number in to_stop if not tracked.runs]
        running = [self._send(tracked, number, now) for tracked, number in to_stop if tracked.runs]
        self._client.cancel(*waiting, *(number for numbers in running for number in numbers))

    def _settle(self) -> None:
        """Whether Slurm has what an earlier server was about to hand over, once that cannot change any more."""
        tried = [tracked for tracked in self._tracked.jobs.values() if tracked.was_tried]
        if not tried or not self._submitter.is_alone:
            return
        found = self._submitter.lookup.numbers_of(tried, written=False)
        jobs = self._client.jobs()
        left = [one for one in tried if one.attempt.id not in found and not self._is_former_requeued(one, jobs)]
        found |= self._submitter.lookup.numbers_of(left) if left else {}
        for tracked in tried:
            tracked.was_tried = False
            if (number := found.get(tracked.attempt.id)) is not None:
                self._tracked.note(tracked, number)
            elif tracked in left and not read_receipt(tracked.receipt).has_begun:
                self._disown(tracked)

    def _disown(self, tracked: TrackedJob) -> None:
        """It never came to Slurm, and must not any more."""
        self._submitter.abandon(tracked.attempt, JournalEntry(tracked.uid, element=tracked.element))
        self._tracked.end(tracked.attempt, Cause.NOT_STARTED)

    def _follow(self, tracked: TrackedJob, job: SlurmJob | None) -> None:
        """An error with one of them does not keep us from seeing the others."""
        try:
            self._follow_one(tracked, job)
        except EngineUnavailable:
            raise
        except Exception:
            log.exception("slurm_attempt_not_followed", attempt=tracked.attempt.id)

    def _follow_one(self, tracked: TrackedJob, job: SlurmJob | None) -> None:
        if job is None or job.uid != tracked.uid or _is_anothers(tracked, job):
            self._miss(tracked)
            return
        tracked.looks_in_vain = 0
        tracked.waits, tracked.runs = job.is_waiting, not job.is_waiting and not job.is_over
        tracked.note_pause(job, _now())
        if tracked.former is not None:
            return
        if tracked.was_requeued(job):
            self._requeue(tracked, job)
            return
        self._retime(tracked, job)
        if job.is_waiting:
            tracked.started = None  # it is being stopped, and was requeued all the same
        if job.has_run and tracked.started is None:
            tracked.started = self._start_of(tracked.attempt, job)
            self._tracked.tell(tracked.started)
        if job.is_over:
            known = Known(tracked.stopped_as, read_receipt(tracked.receipt), self._is_forgetful(tracked, job))
            self._tracked.tell_end(ending(tracked.attempt, job, known))

    def _start_of(self, attempt: Attempt, job: SlurmJob) -> Started:
        devices = self._client.devices(job) if attempt.job.resources.gpus and not job.is_over else {}
        return start_of(attempt, job, devices, self._cluster.device_types, _now())

    def _miss(self, tracked: TrackedJob) -> None:
        """Slurm does not know it, or no longer; what it noted itself counts then."""
        now = time.monotonic()
        tracked.vain_since = now if tracked.looks_in_vain == 0 else tracked.vain_since
        tracked.looks_in_vain += 1
        receipt = read_receipt(tracked.receipt)
        looks = _LOOKS_FOR_ENDED if receipt.has_ended else _VAIN_LOOKS
        if tracked.looks_in_vain < looks or now - tracked.vain_since < (looks - 1) * self.look_seconds:
            return
        if tracked.started is None and receipt.has_begun:
            places = (Place(receipt.node),) * tracked.attempt.job.placement.tasks
            self._tracked.tell(Started(tracked.attempt.id, receipt.noted_at or _now(), places))
        end = ending_by_receipt(tracked.attempt, receipt)
        stopped = tracked.stopped_as if end.cause is not Cause.EXITED else None
        self._tracked.tell_end(end if stopped is None else replace(end, cause=stopped, detail=None))

    def _is_forgetful(self, tracked: TrackedJob, job: SlurmJob) -> bool:
        """Nobody of ours stopped it, and Slurm's controller, which had jobs of ours, had just begun anew."""
        if not was_killed(job) or tracked.stopped_as is not None:
            return False
        if job.number in self._tracked.reused_numbers:
            return True  # it ends the one that it has forgotten, on the node, and takes that for this one's end
        booted_at, ended_at = self._client.booted_at(), job.ended_at or _now()
        if booted_at is None or booted_at.timestamp() < self._tracked.first_noted_at:
            return False
        return 0 <= (ended_at - booted_at).total_seconds() < _FORGETFUL_SECONDS

    def _send(self, tracked: TrackedJob, number: int, now: float) -> list[int]:
        """What is to be cancelled; anything else is sent at once."""
        is_late = tracked.kill_at is not None and now >= tracked.kill_at
        if tracked.is_suspended or (is_late and not tracked.hears_signals):
            return [number]
        if is_late:
            self._client.signal(number, "KILL")
        elif tracked.signals and tracked.hears_signals:
            for signal in tracked.signals:
                self._client.signal(number, heard_as(signal, tracked.attempt.job.spec))
            tracked.signals.clear()
        return []

    def _is_former_requeued(self, tracked: TrackedJob, jobs: Mapping[int, SlurmJob]) -> bool:
        """A server was killed after it had recorded that, and before it had noted the number anew."""
        job = tracked.attempt.job
        former = attempt_id(job.id, job.attempt - 1)
        entry = self._tracked.journal.find(former)
        found = jobs.get(entry.number) if entry and entry.number else None
        if entry is None or found is None or found.uid != tracked.uid or found.is_over:
            return False
        if found.place.restarts <= entry.restarts:
            return False
        tracked.restarts, tracked.first = found.place.restarts, entry.first or job.attempt - 1
        self._tracked.note(tracked, found.number)
        self._tracked.journal.remove([former])
        return True

    def _requeue(self, tracked: TrackedJob, job: SlurmJob) -> None:
        """Slurm has it again, under the same number: that is the next attempt."""
        before, after = tracked.attempt, next_attempt(tracked.attempt)
        again = new_tracked(self._settings, after, tracked.uid)
        again.number, again.former = tracked.number, before.id
        again.restarts, again.first = job.place.restarts, tracked.first or before.job.attempt
        with contextlib.suppress(OSError, Refused):  # then both attempts have the same output
            person = person_of(before.job.unix_user)
            begin_again(self._settings, after, again.first, person, runs=not job.is_waiting)
        detail = "requeued by Slurm, or with Slurm's own tools"
        self._tracked.requeue(tracked, again, Ended(before.id, _now(), Cause.REQUEUED, detail=detail))

    def _retime(self, tracked: TrackedJob, job: SlurmJob) -> None:
        """Somebody has changed its limit: that is its limit from now on."""
        attempt = tracked.attempt
        try:
            found = limit_set_in_slurm(attempt, job, limit_minutes(attempt, self._cluster.site))
        except Unfit:  # the settings have changed since
            return
        if found is not None:
            tracked.attempt = replace(attempt, job=replace(attempt.job, time_limit_seconds=found[0]))
            self._tracked.tell(Retimed(attempt.id, _now(), found[0]))


def _closed(tracked: TrackedJob, job: SlurmJob | None) -> SlurmJob | None:
    """What the accounting knows of one that is in no queue; not that it still runs, if it has noted its own end: a
    controller that was killed may never tell the accounting."""
    is_open = job is not None and not job.is_over
    return None if is_open and read_receipt(tracked.receipt).has_ended else job


def _is_anothers(tracked: TrackedJob, job: SlurmJob) -> bool:
    """Its number is that of another job of this user, which has ended well: ours would have noted its end. One
    that noted its begin under this number is ours: its disk may have been full at its end."""
    receipt = read_receipt(tracked.receipt)
    return job.state == "COMPLETED" and not receipt.has_ended and receipt.number != job.number


def _now() -> datetime:
    return datetime.now(UTC)
