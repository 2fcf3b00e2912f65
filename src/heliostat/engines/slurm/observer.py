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
from heliostat.engines.job_folders import AttemptRefused, require_run_as_user
from heliostat.engines.slurm.arrays import infer_cancelled_element, one_job_per_array
from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.cluster_state import ClusterState
from heliostat.engines.slurm.command_output import SlurmJob
from heliostat.engines.slurm.containers import signal_to_send
from heliostat.engines.slurm.explain import QueueOrder
from heliostat.engines.slurm.journal import JournalEntry, read_receipt
from heliostat.engines.slurm.mapping import (
    EndEvidence,
    UnsupportedRequest,
    determine_end,
    determine_end_from_receipt,
    was_killed,
)
from heliostat.engines.slurm.script import slurm_time_limit_minutes
from heliostat.engines.slurm.submitter import Submitter, make_tracked_job, rotate_logs_after_requeue
from heliostat.engines.slurm.tracked_job import (
    TrackedJob,
    TrackedJobs,
    find_changed_time_limit,
    make_started,
    next_attempt,
)
from heliostat.errors import EngineUnavailable
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptStarted,
    EndCause,
    TaskPlacement,
    TimeLimitChanged,
    format_attempt_id,
)
from heliostat.server_log import get_logger

log = get_logger()
_MOST_MISSED_LOOKS = 10  # after which a job that neither queue nor accounting knows is lost
_MOST_MISSED_AFTER_END = 3  # the same of one that notes its own end: the accounting may be a moment behind
_RESTART_SECONDS = 60.0  # after its start, in which Slurm kills what it finds on nodes and does not remember


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
        self.slurm_jobs: Mapping[int, SlurmJob] = {}  # as of the newest look
        self.queue_order = QueueOrder({})
        self.poll_seconds = 0.0  # from one look to the next, unless a job has noted something

    def adopt(self, attempt: Attempt) -> None:
        """What an earlier server handed over, or did not; where it left no number, `look` finds out."""
        known = self._tracked
        if attempt.id in known.jobs or attempt.id in known.ended or attempt.id in known.requeued:
            return
        entry = known.journal.find(attempt.id)
        try:
            if entry is None or entry.is_unreadable:
                uid: int | None = require_run_as_user(attempt.job.unix_user).uid
            else:
                uid = entry.uid
        except AttemptRefused:
            uid = None
        if uid is None:
            known.end_attempt(attempt, EndCause.NOT_STARTED)
            return
        known.adopt(make_tracked_job(self._settings, attempt, uid), entry)

    def poll(self, *, others: bool = False) -> None:
        """At everything that was handed over, with one question; if `others`, also when that is nothing."""
        self._settle()
        if not (self._tracked.jobs or others):
            return
        jobs = self.slurm_jobs = self._client.jobs(self._tracked.slurm_job_ids)
        self.queue_order = QueueOrder(jobs)
        unseen = [
            one for one in self._tracked.jobs.values() if one.slurm_job_id not in jobs and not one.may_be_submitted
        ]
        for tracked in list(self._tracked.jobs.values()):
            if tracked.slurm_job_id in jobs:
                self._follow(tracked, jobs[tracked.slurm_job_id])
        numbers = [tracked.slurm_job_id for tracked in unseen if tracked.slurm_job_id]
        try:
            past = self._client.past_jobs(numbers) if numbers else {}
        except EngineUnavailable:
            return  # the accounting is away, Slurm itself is not: it is asked again
        arrays = one_job_per_array(jobs) if unseen else {}
        for tracked in unseen:
            known = _closed(tracked, past.get(tracked.slurm_job_id or 0))
            self._follow(tracked, known or infer_cancelled_element(tracked, jobs, arrays))

    def send_signals(self) -> None:
        """To those that are to stop. Of one that the last look has not seen as ours, the number means nothing."""
        now = time.monotonic()
        for tracked in self._tracked.jobs.values():
            if tracked.has_exceeded_time_limit(_now()):
                tracked.request_stop(EndCause.TIMED_OUT, "TERM", now + tracked.attempt.job.spec.grace_seconds)
        to_stop = [
            (tracked, tracked.slurm_job_id)
            for tracked in self._tracked.jobs.values()
            if tracked.slurm_job_id is not None and tracked.stop_cause is not None and not tracked.missed_polls
        ]
        waiting = [number for tracked, number in to_stop if not tracked.is_running]
        running = [self._send(tracked, number, now) for tracked, number in to_stop if tracked.is_running]
        self._client.cancel(*waiting, *(number for numbers in running for number in numbers))

    def _settle(self) -> None:
        """Whether Slurm has what an earlier server was about to hand over, once that cannot change any more."""
        tried = [tracked for tracked in self._tracked.jobs.values() if tracked.may_be_submitted]
        if not tried or not self._submitter.is_only_submitter:
            return
        found = self._submitter.job_lookup.find_job_ids(tried, written=False)
        jobs = self._client.jobs()
        left = [one for one in tried if one.attempt.id not in found and not self._is_former_requeued(one, jobs)]
        found |= self._submitter.job_lookup.find_job_ids(left) if left else {}
        for tracked in tried:
            tracked.may_be_submitted = False
            if (number := found.get(tracked.attempt.id)) is not None:
                self._tracked.record_job_id(tracked, number)
            elif tracked in left and not read_receipt(tracked.receipt_path).has_started:
                self._disown(tracked)

    def _disown(self, tracked: TrackedJob) -> None:
        """It never came to Slurm, and must not any more."""
        self._submitter.abandon(tracked.attempt, JournalEntry(tracked.uid, element=tracked.element))
        self._tracked.end_attempt(tracked.attempt, EndCause.NOT_STARTED)

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
        tracked.missed_polls = 0
        tracked.is_waiting, tracked.is_running = job.is_waiting, not job.is_waiting and not job.is_terminal
        tracked.update_suspension(job, _now())
        if tracked.previous_attempt_id is not None:
            return
        if tracked.was_requeued(job):
            self._requeue(tracked, job)
            return
        self._retime(tracked, job)
        if job.is_waiting:
            tracked.started = None  # it is being stopped, and was requeued all the same
        if job.has_started and tracked.started is None:
            tracked.started = self._start_of(tracked.attempt, job)
            self._tracked.report(tracked.started)
        if job.is_terminal:
            known = EndEvidence(
                tracked.stop_cause, read_receipt(tracked.receipt_path), self._controller_restarted(tracked, job)
            )
            self._tracked.report_end(determine_end(tracked.attempt, job, known))

    def _start_of(self, attempt: Attempt, job: SlurmJob) -> AttemptStarted:
        devices = self._client.job_devices(job) if attempt.job.resources.gpus and not job.is_terminal else {}
        return make_started(attempt, job, devices, self._cluster.device_types, _now())

    def _miss(self, tracked: TrackedJob) -> None:
        """Slurm does not know it, or no longer; what it noted itself counts then."""
        now = time.monotonic()
        tracked.missed_since = now if tracked.missed_polls == 0 else tracked.missed_since
        tracked.missed_polls += 1
        receipt = read_receipt(tracked.receipt_path)
        looks = _MOST_MISSED_AFTER_END if receipt.has_ended else _MOST_MISSED_LOOKS
        if tracked.missed_polls < looks or now - tracked.missed_since < (looks - 1) * self.poll_seconds:
            return
        if tracked.started is None and receipt.has_started:
            places = (TaskPlacement(receipt.node),) * tracked.attempt.job.placement.tasks
            self._tracked.report(AttemptStarted(tracked.attempt.id, receipt.written_at or _now(), places))
        end = determine_end_from_receipt(tracked.attempt, receipt)
        stopped = tracked.stop_cause if end.cause is not EndCause.EXITED else None
        self._tracked.report_end(end if stopped is None else replace(end, cause=stopped, detail=None))

    def _controller_restarted(self, tracked: TrackedJob, job: SlurmJob) -> bool:
        """Nobody of ours stopped it, and Slurm's controller, which had jobs of ours, had just begun anew."""
        if not was_killed(job) or tracked.stop_cause is not None:
            return False
        if job.job_id in self._tracked.reused_job_ids:
            return True  # it ends the one that it has forgotten, on the node, and takes that for this one's end
        booted_at, ended_at = self._client.controller_started_at(), job.ended_at or _now()
        if booted_at is None or booted_at.timestamp() < self._tracked.first_submitted_at:
            return False
        return 0 <= (ended_at - booted_at).total_seconds() < _RESTART_SECONDS

    def _send(self, tracked: TrackedJob, number: int, now: float) -> list[int]:
        """What is to be cancelled; anything else is sent at once."""
        is_late = tracked.kill_at is not None and now >= tracked.kill_at
        if tracked.is_suspended or (is_late and not tracked.can_receive_signals):
            return [number]
        if is_late:
            self._client.send_signal(number, "KILL")
        elif tracked.pending_signals and tracked.can_receive_signals:
            for signal in tracked.pending_signals:
                self._client.send_signal(number, signal_to_send(signal, tracked.attempt.job.spec))
            tracked.pending_signals.clear()
        return []

    def _is_former_requeued(self, tracked: TrackedJob, jobs: Mapping[int, SlurmJob]) -> bool:
        """A server was killed after it had recorded that, and before it had noted the number anew."""
        job = tracked.attempt.job
        former = format_attempt_id(job.id, job.attempt - 1)
        entry = self._tracked.journal.find(former)
        found = jobs.get(entry.slurm_job_id) if entry and entry.slurm_job_id else None
        if entry is None or found is None or found.uid != tracked.uid or found.is_terminal:
            return False
        if found.queue_details.restart_count <= entry.restart_count:
            return False
        tracked.restart_count, tracked.submitted_as_attempt = (
            found.queue_details.restart_count,
            entry.submitted_as_attempt or job.attempt - 1,
        )
        self._tracked.record_job_id(tracked, found.job_id)
        self._tracked.journal.remove([former])
        return True

    def _requeue(self, tracked: TrackedJob, job: SlurmJob) -> None:
        """Slurm has it again, under the same number: that is the next attempt."""
        before, after = tracked.attempt, next_attempt(tracked.attempt)
        again = make_tracked_job(self._settings, after, tracked.uid)
        again.slurm_job_id, again.previous_attempt_id = tracked.slurm_job_id, before.id
        again.restart_count, again.submitted_as_attempt = (
            job.queue_details.restart_count,
            tracked.submitted_as_attempt or before.job.attempt,
        )
        with contextlib.suppress(OSError, AttemptRefused):  # then both attempts have the same output
            person = require_run_as_user(before.job.unix_user)
            rotate_logs_after_requeue(
                self._settings, after, again.submitted_as_attempt, person, runs=not job.is_waiting
            )
        detail = "requeued by Slurm, or with Slurm's own tools"
        self._tracked.requeue(tracked, again, AttemptEnded(before.id, _now(), EndCause.REQUEUED, detail=detail))

    def _retime(self, tracked: TrackedJob, job: SlurmJob) -> None:
        """Somebody has changed its limit: that is its limit from now on."""
        attempt = tracked.attempt
        try:
            found = find_changed_time_limit(
                attempt, job, slurm_time_limit_minutes(attempt, self._cluster.submission_context)
            )
        except UnsupportedRequest:  # the settings have changed since
            return
        if found is not None:
            tracked.attempt = replace(attempt, job=replace(attempt.job, time_limit_seconds=found[0]))
            self._tracked.report(TimeLimitChanged(attempt.id, _now(), found[0]))


def _closed(tracked: TrackedJob, job: SlurmJob | None) -> SlurmJob | None:
    """What the accounting knows of one that is in no queue; not that it still runs, if it has noted its own end: a
    controller that was killed may never tell the accounting."""
    is_open = job is not None and not job.is_terminal
    return None if is_open and read_receipt(tracked.receipt_path).has_ended else job


def _is_anothers(tracked: TrackedJob, job: SlurmJob) -> bool:
    """Its number is that of another job of this user, which has ended well: ours would have noted its end. One
    that noted its begin under this number is ours: its disk may have been full at its end."""
    receipt = read_receipt(tracked.receipt_path)
    return job.state == "COMPLETED" and not receipt.has_ended and receipt.slurm_job_id != job.job_id


def _now() -> datetime:
    return datetime.now(UTC)
