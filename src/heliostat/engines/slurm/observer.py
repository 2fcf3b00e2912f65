"""Observes Heliostat's jobs in Slurm with one query for all, and sends signals to jobs that are to stop.

Not thread-safe: one thread at a time. Every method may raise EngineUnavailable midway: what was observed until
then is reported, and the next call does the rest.
"""

import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

from heliostat.config import Settings
from heliostat.engines.job_folders import AttemptRefused, require_run_as_user
from heliostat.engines.slurm.arrays import infer_cancelled_element, one_job_per_array
from heliostat.engines.slurm.batch_script import slurm_time_limit_minutes
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
from heliostat.engines.slurm.submitter import Submitter, make_tracked_job, rotate_logs_after_requeue
from heliostat.engines.slurm.tracked_jobs import (
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
_MAX_MISSED_POLLS = 10  # after which a job that is in neither queue nor accounting is lost
_MAX_MISSED_POLLS_AFTER_END = 3  # the same for a job whose receipt has its end: the accounting may lag behind
_RESTART_SECONDS = 60.0  # after its start, slurmctld kills unknown jobs on nodes during this time


class Observer:
    """Reports what has changed of tracked jobs since the last poll."""

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
        self.slurm_jobs: Mapping[int, SlurmJob] = {}  # at the last poll
        self.queue_order = QueueOrder({})
        self.poll_seconds = 0.0  # between two polls, unless a receipt changes

    def adopt(self, attempt: Attempt) -> None:
        """Tracks an attempt of an earlier server. If its Slurm job id is unknown, `poll` finds it."""
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
        """Observes all tracked jobs with one query. `others`: query also if there are no tracked jobs."""
        self._resolve_submissions()
        if not (self._tracked.jobs or others):
            return
        jobs = self.slurm_jobs = self._client.jobs(self._tracked.slurm_job_ids)
        self.queue_order = QueueOrder(jobs)
        missing = [
            tracked
            for tracked in self._tracked.jobs.values()
            if tracked.slurm_job_id not in jobs and not tracked.may_be_submitted
        ]
        for tracked in list(self._tracked.jobs.values()):
            if tracked.slurm_job_id in jobs:
                self._update(tracked, jobs[tracked.slurm_job_id])
        numbers = [tracked.slurm_job_id for tracked in missing if tracked.slurm_job_id]
        try:
            past = self._client.past_jobs(numbers) if numbers else {}
        except EngineUnavailable:
            return  # only the accounting is unavailable: the next poll tries again
        arrays = one_job_per_array(jobs) if missing else {}
        for tracked in missing:
            record = _without_stale_record(tracked, past.get(tracked.slurm_job_id or 0))
            self._update(tracked, record or infer_cancelled_element(tracked, jobs, arrays))

    def send_signals(self) -> None:
        """To jobs that are to stop. Skips jobs that the last poll did not find: their id may belong to another."""
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

    def _resolve_submissions(self) -> None:
        """Finds out which unfinished submissions of an earlier server Slurm has, once that cannot change."""
        tried = [tracked for tracked in self._tracked.jobs.values() if tracked.may_be_submitted]
        if not tried or not self._submitter.is_only_submitter:
            return
        found = self._submitter.job_lookup.find_job_ids(tried, written=False)
        jobs = self._client.jobs()
        left = [job for job in tried if job.attempt.id not in found and not self._is_former_requeued(job, jobs)]
        found |= self._submitter.job_lookup.find_job_ids(left) if left else {}
        for tracked in tried:
            tracked.may_be_submitted = False
            if (number := found.get(tracked.attempt.id)) is not None:
                self._tracked.record_job_id(tracked, number)
            elif tracked in left and not read_receipt(tracked.receipt_path).has_started:
                self._disown(tracked)

    def _disown(self, tracked: TrackedJob) -> None:
        """It never reached Slurm, and must not be submitted any more."""
        self._submitter.abandon(tracked.attempt, JournalEntry(tracked.uid, element=tracked.element))
        self._tracked.end_attempt(tracked.attempt, EndCause.NOT_STARTED)

    def _update(self, tracked: TrackedJob, job: SlurmJob | None) -> None:
        """An error with one job does not affect the others."""
        try:
            self._update_one(tracked, job)
        except EngineUnavailable:
            raise
        except Exception:
            log.exception("slurm_attempt_update_failed", attempt=tracked.attempt.id)

    def _update_one(self, tracked: TrackedJob, job: SlurmJob | None) -> None:
        if job is None or job.uid != tracked.uid or _is_other_job(tracked, job):
            self._count_missed_poll(tracked)
            return
        tracked.missed_polls = 0
        tracked.is_waiting, tracked.is_running = job.is_waiting, not job.is_waiting and not job.is_terminal
        tracked.update_suspension(job, _now())
        if tracked.previous_attempt_id is not None:
            return
        if tracked.was_requeued(job):
            self._requeue(tracked, job)
            return
        self._update_time_limit(tracked, job)
        if job.is_waiting:
            tracked.started = None  # it is being stopped, but was requeued nevertheless
        if job.has_started and tracked.started is None:
            tracked.started = self._make_started(tracked.attempt, job)
            self._tracked.report(tracked.started)
        if job.is_terminal:
            evidence = EndEvidence(
                tracked.stop_cause, read_receipt(tracked.receipt_path), self._controller_restarted(tracked, job)
            )
            self._tracked.report_end(determine_end(tracked.attempt, job, evidence))

    def _make_started(self, attempt: Attempt, job: SlurmJob) -> AttemptStarted:
        devices = self._client.job_devices(job) if attempt.job.resources.gpus and not job.is_terminal else {}
        return make_started(attempt, job, devices, self._cluster.device_types, _now())

    def _count_missed_poll(self, tracked: TrackedJob) -> None:
        """Slurm does not list the job. After several polls its receipt decides how it ended."""
        now = time.monotonic()
        tracked.missed_since = now if tracked.missed_polls == 0 else tracked.missed_since
        tracked.missed_polls += 1
        receipt = read_receipt(tracked.receipt_path)
        polls = _MAX_MISSED_POLLS_AFTER_END if receipt.has_ended else _MAX_MISSED_POLLS
        if tracked.missed_polls < polls or now - tracked.missed_since < (polls - 1) * self.poll_seconds:
            return
        if tracked.started is None and receipt.has_started:
            places = (TaskPlacement(receipt.node),) * tracked.attempt.job.placement.tasks
            self._tracked.report(AttemptStarted(tracked.attempt.id, receipt.written_at or _now(), places))
        end = determine_end_from_receipt(tracked.attempt, receipt)
        stop_cause = tracked.stop_cause if end.cause is not EndCause.EXITED else None
        self._tracked.report_end(end if stop_cause is None else replace(end, cause=stop_cause, detail=None))

    def _controller_restarted(self, tracked: TrackedJob, job: SlurmJob) -> bool:
        """Whether the job was killed because slurmctld had just restarted, and not by Heliostat."""
        if not was_killed(job) or tracked.stop_cause is not None:
            return False
        if job.job_id in self._tracked.reused_job_ids:
            return True  # slurmctld kills the forgotten job with this id and takes that for the end of this one
        booted_at, ended_at = self._client.controller_started_at(), job.ended_at or _now()
        if booted_at is None or booted_at.timestamp() < self._tracked.first_submitted_at:
            return False
        return 0 <= (ended_at - booted_at).total_seconds() < _RESTART_SECONDS

    def _send(self, tracked: TrackedJob, number: int, now: float) -> list[int]:
        """Sends signals that are due. Returns the id if the job is to be cancelled instead."""
        kill_is_due = tracked.kill_at is not None and now >= tracked.kill_at
        if tracked.is_suspended or (kill_is_due and not tracked.can_receive_signals):
            return [number]
        if kill_is_due:
            self._client.send_signal(number, "KILL")
        elif tracked.pending_signals and tracked.can_receive_signals:
            for signal in tracked.pending_signals:
                self._client.send_signal(number, signal_to_send(signal, tracked.attempt.job.spec))
            tracked.pending_signals.clear()
        return []

    def _is_former_requeued(self, tracked: TrackedJob, jobs: Mapping[int, SlurmJob]) -> bool:
        """Whether this is a requeued attempt whose journal entry a killed server had not written yet."""
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
        """Slurm requeued the job under the same id: this is the next attempt."""
        before, after = tracked.attempt, next_attempt(tracked.attempt)
        again = make_tracked_job(self._settings, after, tracked.uid)
        again.slurm_job_id, again.previous_attempt_id = tracked.slurm_job_id, before.id
        again.restart_count, again.submitted_as_attempt = (
            job.queue_details.restart_count,
            tracked.submitted_as_attempt or before.job.attempt,
        )
        with contextlib.suppress(OSError, AttemptRefused):  # then both attempts share their output
            person = require_run_as_user(before.job.unix_user)
            rotate_logs_after_requeue(
                self._settings, after, again.submitted_as_attempt, person, runs=not job.is_waiting
            )
        detail = "requeued by Slurm, or with Slurm's own tools"
        self._tracked.requeue(tracked, again, AttemptEnded(before.id, _now(), EndCause.REQUEUED, detail=detail))

    def _update_time_limit(self, tracked: TrackedJob, job: SlurmJob) -> None:
        """Adopts a time limit that was changed with Slurm's own tools."""
        attempt = tracked.attempt
        try:
            changed = find_changed_time_limit(
                attempt, job, slurm_time_limit_minutes(attempt, self._cluster.submission_context)
            )
        except UnsupportedRequest:  # the settings have changed since
            return
        if changed is not None:
            tracked.attempt = replace(attempt, job=replace(attempt.job, time_limit_seconds=changed[0]))
            self._tracked.report(TimeLimitChanged(attempt.id, _now(), changed[0]))


def _without_stale_record(tracked: TrackedJob, job: SlurmJob | None) -> SlurmJob | None:
    """The accounting's record of a job that is not in the queue. None if the record says that the job runs but its
    receipt has its end: a slurmctld that was killed may never have updated the accounting."""
    is_open = job is not None and not job.is_terminal
    return None if is_open and read_receipt(tracked.receipt_path).has_ended else job


def _is_other_job(tracked: TrackedJob, job: SlurmJob) -> bool:
    """Whether the id now belongs to another job of this user, which completed: the receipt of the tracked job
    would have its end. If the receipt has a start under this id, the job is ours; the disk may have been full at
    its end."""
    receipt = read_receipt(tracked.receipt_path)
    return job.state == "COMPLETED" and not receipt.has_ended and receipt.slurm_job_id != job.job_id


def _now() -> datetime:
    return datetime.now(UTC)
