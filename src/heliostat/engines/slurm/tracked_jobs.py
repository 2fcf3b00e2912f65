"""Tracked jobs: the attempts that were submitted to Slurm, and their state."""

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from heliostat.engines.slurm.command_output import SlurmJob, parse_whole_seconds
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry, SubmissionJournal
from heliostat.engines.slurm.mapping import device_uuid
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    EndCause,
    JobState,
    Observation,
    TaskPlacement,
)

_MIN_PAUSE_SECONDS = 3.0  # less may be a difference of two clocks


@dataclass(slots=True)
class TrackedJob:
    attempt: Attempt
    receipt_path: str  # file in which its script records its start and end
    uid: int
    slurm_job_id: int | None = None
    may_be_submitted: bool = False  # Slurm may have it, but its id is unknown
    started: AttemptStarted | None = None  # as reported
    is_waiting: bool = False  # in Slurm, at the last poll
    is_running: bool = False
    is_suspended: bool = False
    paused_seconds: float = 0.0  # total suspension since it started
    restart_count: int = 0  # how often Slurm had requeued it when this attempt began
    submitted_as_attempt: int | None = None  # if it was submitted as an earlier attempt
    # Its end is reported but not yet recorded; until then nothing is reported of this attempt.
    previous_attempt_id: AttemptId | None = None
    stop_cause: EndCause | None = None
    pending_signals: list[str] = field(default_factory=list)  # to be sent when it can receive them
    requested_signals: set[str] = field(default_factory=set)
    kill_at: float | None = None  # by the monotonic clock
    missed_polls: int = 0
    missed_since: float = math.inf  # first of these polls, by the monotonic clock
    element: ArrayElement | None = None  # if it was submitted together with others

    def request_stop(self, cause: EndCause, signal: str, kill_at: float) -> None:
        """The first request sets the cause, the shortest grace time applies, and each signal is sent once."""
        self.stop_cause = self.stop_cause or cause
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if signal not in self.requested_signals:
            self.requested_signals.add(signal)
            self.pending_signals.append(signal)

    def has_exceeded_time_limit(self, now: datetime) -> bool:
        """In seconds, unlike Slurm's own limit, which is in minutes."""
        limit = self.attempt.job.time_limit_seconds
        if limit is None or self.attempt.job.overtime or self.started is None or not self.is_running:
            return False
        ran = (now - self.started.at).total_seconds() - self.paused_seconds
        return self.stop_cause is None and not self.is_suspended and ran >= limit

    def was_requeued(self, job: SlurmJob) -> bool:
        """Since this attempt began. False while it is being stopped, and while processes of the previous run
        exist: until then the output cannot be assigned."""
        has_settled = not job.is_terminal and job.state != "COMPLETING"
        return job.queue_details.restart_count > self.restart_count and self.stop_cause is None and has_settled

    def update_suspension(self, job: SlurmJob, now: datetime) -> None:
        """Slurm's time_used does not advance while a job is suspended."""
        self.is_suspended = job.state == "SUSPENDED"
        used = (
            parse_whole_seconds(job.queue_details.time_used)
            if job.has_started and not job.is_terminal and job.started_at
            else None
        )
        if used is not None and job.started_at is not None:
            paused = (now - job.started_at).total_seconds() - used
            self.paused_seconds = paused if paused > _MIN_PAUSE_SECONDS else 0.0

    @property
    def can_receive_signals(self) -> bool:
        """False until the script has started: Slurm reports RUNNING earlier, and signals would be lost."""
        try:
            return os.stat(self.receipt_path, follow_symlinks=False).st_size > 0
        except OSError:
            return False


class TrackedJobs:
    """All tracked jobs, in memory and in the journal, and their unsent reports. Several threads may submit at the
    same time; everything else is done by one thread at a time."""

    def __init__(self, journal: SubmissionJournal) -> None:
        self.journal = journal
        self.jobs: dict[AttemptId, TrackedJob] = {}
        self.ended: dict[AttemptId, AttemptEnded] = {}  # until `forget`
        self.requeued: dict[AttemptId, AttemptEnded] = {}  # until `forget`
        self.reused_job_ids: set[int] = set()  # Slurm's reports about these ids may concern either job
        self.first_submitted_at = math.inf  # earliest known submission, in seconds since 1970
        self._owners: dict[int, AttemptId] = {}  # by Slurm job id
        self._outbox: list[Observation] = []

    @property
    def slurm_job_ids(self) -> set[int]:
        return {tracked.slurm_job_id for tracked in self.jobs.values() if tracked.slurm_job_id is not None}

    def report(self, observation: Observation) -> None:
        self._outbox.append(observation)

    def take_reports(self) -> list[Observation]:
        """The reports since the last call."""
        reports, self._outbox = self._outbox, []
        return reports

    def last_observation(self, attempt_id: AttemptId) -> list[Observation]:
        """The last report of an attempt, or an empty list."""
        tracked = self.jobs.get(attempt_id)
        newest = (
            self.ended.get(attempt_id) or self.requeued.get(attempt_id) or (tracked.started if tracked else None)
        )
        return [] if newest is None else [newest]

    def record_job_id(self, tracked: TrackedJob, number: int) -> None:
        """Slurm has the job, under this id."""
        tracked.slurm_job_id = number
        self.first_submitted_at = min(self.first_submitted_at, time.time())
        self._own(tracked, number)
        self.jobs[tracked.attempt.id] = tracked  # also if the journal fails: its comment identifies it
        entry = JournalEntry(
            tracked.uid, number, tracked.element, tracked.restart_count, tracked.submitted_as_attempt
        )
        self.journal.put(tracked.attempt.id, entry)

    def adopt(self, tracked: TrackedJob, entry: JournalEntry | None) -> None:
        """Tracks a job of an earlier server, with its journal entry."""
        attempt_id = tracked.attempt.id
        if entry is not None:
            tracked.slurm_job_id, tracked.element = entry.slurm_job_id, entry.element
            self.first_submitted_at = min(self.first_submitted_at, self.journal.written_at(attempt_id))
            tracked.is_waiting = tracked.attempt.job.state is JobState.PENDING
            tracked.restart_count, tracked.submitted_as_attempt = entry.restart_count, entry.submitted_as_attempt
        tracked.may_be_submitted = tracked.slurm_job_id is None
        if tracked.slurm_job_id is not None:
            self._own_by_journal(tracked, tracked.slurm_job_id)
        self.jobs[attempt_id] = tracked

    def requeue(self, before: TrackedJob, after: TrackedJob, end: AttemptEnded) -> None:
        """Slurm requeued the job under the same id: `after` is the next attempt."""
        del self.jobs[before.attempt.id]
        self.jobs[after.attempt.id] = after
        if after.slurm_job_id is not None:
            self._owners[after.slurm_job_id] = after.attempt.id
        self.requeued[before.attempt.id] = end
        self.report(end)

    def end_attempt(self, attempt: Attempt, cause: EndCause, detail: str | None = None) -> None:
        self.report_end(AttemptEnded(attempt.id, datetime.now(UTC), cause, detail=detail))

    def report_end(self, end: AttemptEnded) -> None:
        self.ended[end.attempt_id] = end
        removed = self.jobs.pop(end.attempt_id, None)
        if (
            removed is not None
            and removed.slurm_job_id is not None
            and self._owners.get(removed.slurm_job_id) == end.attempt_id
        ):
            del self._owners[removed.slurm_job_id]
        self.report(end)

    def forget(self, attempt_id: AttemptId) -> bool:
        """The end of the attempt is recorded. True: it has also ended in Slurm; its journal entry stays. False: it
        was requeued, and the next attempt may be reported from now on."""
        self.ended.pop(attempt_id, None)
        if self.requeued.pop(attempt_id, None) is None:
            return True
        if (after := self.find_successor(attempt_id)) and after.slurm_job_id is not None:
            self.record_job_id(after, after.slurm_job_id)
            after.previous_attempt_id = None
        self.journal.remove([attempt_id])
        return False

    def find_successor(self, attempt_id: AttemptId) -> TrackedJob | None:
        return next(
            (tracked for tracked in list(self.jobs.values()) if tracked.previous_attempt_id == attempt_id), None
        )

    def _own(self, tracked: TrackedJob, number: int) -> None:
        """Slurm reuses an id only if it has lost the job that had it."""
        before = self.jobs.get(self._owners.get(number, ""))
        if before is not None and before is not tracked and before.slurm_job_id == number:
            before.slurm_job_id = None
            self.reused_job_ids.add(number)
        self._owners[number] = tracked.attempt.id

    def _own_by_journal(self, tracked: TrackedJob, number: int) -> None:
        """If the journal has two attempts with the same id, Slurm has the one that was written last."""
        before = self.jobs.get(self._owners.get(number, ""))
        written_at = self.journal.written_at
        if before is not None and written_at(before.attempt.id) > written_at(tracked.attempt.id):
            tracked.slurm_job_id = None
            self.reused_job_ids.add(number)
            return
        self._own(tracked, number)


def next_attempt(attempt: Attempt) -> Attempt:
    """The next attempt of a requeued job."""
    number = attempt.job.attempt + 1
    job = replace(attempt.job, attempt=number, state=JobState.PENDING, dispatched=True)
    return Attempt(job.attempt_id, job, "")


def with_time_limit(attempt: Attempt, limit_seconds: int) -> Attempt:
    """Unchanged if the attempt's limit is already as long."""
    before = attempt.job.time_limit_seconds
    if before is None or before >= limit_seconds:
        return attempt
    return replace(attempt, job=replace(attempt.job, time_limit_seconds=limit_seconds))


def find_changed_time_limit(attempt: Attempt, job: SlurmJob, minutes: int | None) -> tuple[int | None] | None:
    """The limit, if it was changed with Slurm's own tools; None: unchanged. `minutes`: limit at submission.

    None also for a job without a limit of its own: it has that of its partition.
    """
    ours, limit = attempt.job.time_limit_seconds, parse_whole_seconds(job.queue_details.time_limit)
    if job.squeue_details is None or minutes is None or limit in (minutes * 60, ours):
        return None
    return (limit,)


def make_started(
    attempt: Attempt,
    job: SlurmJob,
    devices: Mapping[str, tuple[int, ...]],
    types: Mapping[str, str],
    now: datetime,
) -> AttemptStarted:
    """Tasks are distributed over the nodes in blocks, and share the GPUs of a node evenly.

    `devices`: indexes of the job's GPUs by node. `types`: GPU types of all devices by uuid.
    """
    tasks = attempt.job.placement.tasks
    nodes = job.nodes or ("",)
    where = [nodes[rank * len(nodes) // tasks] for rank in range(tasks)]
    places = tuple(
        TaskPlacement(
            node, _devices_of_task(node, devices.get(node, ()), where[:rank].count(node), where.count(node))
        )
        for rank, node in enumerate(where)
    )
    kinds = {types[uuid] for place in places for uuid in place.devices if uuid in types}
    kind = kinds.pop() if len(kinds) == 1 else None
    return AttemptStarted(attempt.id, min(job.started_at or now, now), places, kind)


def _devices_of_task(node: str, indexes: tuple[int, ...], number: int, tasks: int) -> tuple[str, ...]:
    """`number`: index of the task among the tasks on this node."""
    size = len(indexes) // tasks
    return tuple(device_uuid(node, index) for index in indexes[number * size : (number + 1) * size])
