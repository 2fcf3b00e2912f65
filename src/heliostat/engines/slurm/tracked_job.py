"""Attempts of ours that Slurm has: what is known of each, and how it is found there again."""

import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from heliostat.engines.slurm.client import SlurmClient
from heliostat.engines.slurm.command_output import ArrayElementId, SlurmJob, parse_whole_seconds
from heliostat.engines.slurm.journal import ArrayElement, JournalEntry, SubmissionJournal, read_receipt
from heliostat.engines.slurm.mapping import device_uuid
from heliostat.engines.slurm.script import array_comment, attempt_comment
from heliostat.models import (
    Attempt,
    AttemptEnded,
    AttemptId,
    AttemptStarted,
    EndCause,
    JobState,
    Observation,
    TaskPlacement,
    job_id_of_attempt,
)

_LEAST_PAUSE_SECONDS = 3.0  # less is the difference of two clocks
_Marks = Mapping[int, Mapping[str, Sequence[int]]]  # by uid and comment


@dataclass(slots=True)
class TrackedJob:
    attempt: Attempt
    receipt_path: str  # the file in which its script notes its life
    uid: int
    slurm_job_id: int | None = None  # in Slurm
    may_be_submitted: bool = False  # Slurm may have it, though we know no number
    started: AttemptStarted | None = None  # what was told
    is_waiting: bool = False  # in Slurm, as of the newest look
    is_running: bool = False
    is_suspended: bool = False
    paused_seconds: float = 0.0  # in which it was suspended since it started
    restart_count: int = 0  # how often Slurm had requeued it when this attempt began to wait
    submitted_as_attempt: int | None = None  # the attempt it was submitted as, if that is another
    previous_attempt_id: AttemptId | None = (
        None  # whose end is told but not yet recorded: until then this one is not told
    )
    stop_cause: EndCause | None = None
    pending_signals: list[str] = field(default_factory=list)  # to be sent when it can hear them
    requested_signals: set[str] = field(default_factory=set)
    kill_at: float | None = None  # by the monotonic clock
    missed_polls: int = 0
    missed_since: float = math.inf  # the first of these looks, by the monotonic clock
    element: ArrayElement | None = None  # if it was submitted together with others

    def request_stop(self, cause: EndCause, signal: str, kill_at: float) -> None:
        """The first request names the cause, the shortest grace counts, and each signal is sent once."""
        self.stop_cause = self.stop_cause or cause
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if signal not in self.requested_signals:
            self.requested_signals.add(signal)
            self.pending_signals.append(signal)

    def has_exceeded_time_limit(self, now: datetime) -> bool:
        """Slurm counts in minutes; we count in seconds."""
        limit = self.attempt.job.time_limit_seconds
        if limit is None or self.attempt.job.overtime or self.started is None or not self.is_running:
            return False
        ran = (now - self.started.at).total_seconds() - self.paused_seconds
        return self.stop_cause is None and not self.is_suspended and ran >= limit

    def was_requeued(self, job: SlurmJob) -> bool:
        """Since this attempt began to wait. One that we stop is not put back: it is ended. While something of the
        former run is left, nobody can say whose the output is."""
        has_settled = not job.is_terminal and job.state != "COMPLETING"
        return job.queue_details.restart_count > self.restart_count and self.stop_cause is None and has_settled

    def update_suspension(self, job: SlurmJob, now: datetime) -> None:
        """Slurm's clock stands still while a job is suspended."""
        self.is_suspended = job.state == "SUSPENDED"
        used = (
            parse_whole_seconds(job.queue_details.time_used)
            if job.has_started and not job.is_terminal and job.started_at
            else None
        )
        if used is not None and job.started_at is not None:
            paused = (now - job.started_at).total_seconds() - used
            self.paused_seconds = paused if paused > _LEAST_PAUSE_SECONDS else 0.0

    @property
    def can_receive_signals(self) -> bool:
        """Slurm says that a job runs a moment before there is a process of it; what is sent then is lost."""
        try:
            return os.stat(self.receipt_path, follow_symlinks=False).st_size > 0
        except OSError:
            return False


class TrackedJobs:
    """All of them, in memory and in the journal; and what is to be told of them. Several may be submitted at the
    same time; all else is done by one thread at a time."""

    def __init__(self, journal: SubmissionJournal) -> None:
        self.journal = journal
        self.jobs: dict[AttemptId, TrackedJob] = {}
        self.ended: dict[AttemptId, AttemptEnded] = {}  # until they are forgotten
        self.requeued: dict[AttemptId, AttemptEnded] = {}  # put back by Slurm, until that is recorded
        self.reused_job_ids: set[int] = set()  # of these, what Slurm says may be of either job
        self.first_submitted_at = math.inf  # when the first of all we know was submitted, in seconds since 1970
        self._owners: dict[int, AttemptId] = {}  # of Slurm's numbers
        self._outbox: list[Observation] = []

    @property
    def slurm_job_ids(self) -> set[int]:
        """In Slurm, as far as they are known."""
        return {tracked.slurm_job_id for tracked in self.jobs.values() if tracked.slurm_job_id is not None}

    def report(self, seen: Observation) -> None:
        self._outbox.append(seen)

    def take_reports(self) -> list[Observation]:
        """What was seen since this was last asked."""
        told, self._outbox = self._outbox, []
        return told

    def last_observation(self, attempt_id: AttemptId) -> list[Observation]:
        """What was told of it last."""
        tracked = self.jobs.get(attempt_id)
        newest = (
            self.ended.get(attempt_id) or self.requeued.get(attempt_id) or (tracked.started if tracked else None)
        )
        return [] if newest is None else [newest]

    def record_job_id(self, tracked: TrackedJob, number: int) -> None:
        """Slurm has it, under this number."""
        tracked.slurm_job_id = number
        self.first_submitted_at = min(self.first_submitted_at, time.time())
        self._own(tracked, number)
        self.jobs[tracked.attempt.id] = tracked  # also if that cannot be noted: it is found again by its mark
        entry = JournalEntry(
            tracked.uid, number, tracked.element, tracked.restart_count, tracked.submitted_as_attempt
        )
        self.journal.put(tracked.attempt.id, entry)

    def adopt(self, tracked: TrackedJob, entry: JournalEntry | None) -> None:
        """As an earlier server has noted it."""
        attempt_id = tracked.attempt.id
        if entry is not None:
            tracked.slurm_job_id, tracked.element = entry.slurm_job_id, entry.element
            self.first_submitted_at = min(self.first_submitted_at, self.journal.written_at(attempt_id))
            tracked.is_waiting = tracked.attempt.job.state is JobState.PENDING
            tracked.restart_count, tracked.submitted_as_attempt = entry.restart_count, entry.submitted_as_attempt
        tracked.may_be_submitted = tracked.slurm_job_id is None
        if tracked.slurm_job_id is not None:
            self._own_as_noted(tracked, tracked.slurm_job_id)
        self.jobs[attempt_id] = tracked

    def requeue(self, before: TrackedJob, after: TrackedJob, end: AttemptEnded) -> None:
        """Slurm has put it back into its queue, under the same number: that is the next attempt."""
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
        gone = self.jobs.pop(end.attempt_id, None)
        if (
            gone is not None
            and gone.slurm_job_id is not None
            and self._owners.get(gone.slurm_job_id) == end.attempt_id
        ):
            del self._owners[gone.slurm_job_id]
        self.report(end)

    def forget(self, attempt_id: AttemptId) -> bool:
        """Its end is recorded. True if that is its end in Slurm, too: its entry is left then. If it was requeued,
        the next attempt may be told of from now on."""
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
        """Slurm gives a number twice only if it has forgotten the job that had it."""
        before = self.jobs.get(self._owners.get(number, ""))
        if before is not None and before is not tracked and before.slurm_job_id == number:
            before.slurm_job_id = None
            self.reused_job_ids.add(number)
        self._owners[number] = tracked.attempt.id

    def _own_as_noted(self, tracked: TrackedJob, number: int) -> None:
        """Of two that an earlier server noted under one number, Slurm has the one that was noted last."""
        before = self.jobs.get(self._owners.get(number, ""))
        noted_at = self.journal.written_at
        if before is not None and noted_at(before.attempt.id) > noted_at(tracked.attempt.id):
            tracked.slurm_job_id = None
            self.reused_job_ids.add(number)
            return
        self._own(tracked, number)


@dataclass(frozen=True, slots=True)
class JobLookup:
    """Finds in Slurm what is ours when its number is not known, or may be that of another job by now.

    Anybody may give a job any comment: whatever bears our mark must also be of the right user, and the comments of
    each user are asked for alone.
    """

    client: SlurmClient
    instance: str

    def find_job_ids(self, lost: Sequence[TrackedJob], *, written: bool = True) -> dict[AttemptId, int]:
        """Of attempts whose answer was lost: by their mark, and by what their script wrote when it began."""
        marks = self._marks(tracked.uid for tracked in lost)
        hints = {
            tracked.attempt.id: self._marked(marks, tracked.attempt.id, tracked.uid, tracked.element)
            + (_written(tracked) if written else [])
            for tracked in lost
        }
        if not any(hints.values()):
            return {}
        known = self.client.jobs()
        unseen = [number for numbers in hints.values() if not known.keys() & set(numbers) for number in numbers]
        known |= self.client.past_jobs(unseen) if unseen else {}
        found: dict[AttemptId, int] = {}
        for tracked in lost:
            numbers = [one for one in hints[tracked.attempt.id] if one in known and known[one].uid == tracked.uid]
            found |= {tracked.attempt.id: numbers[0]} if numbers else {}
        return found

    def find_orphans(self, journal: Mapping[AttemptId, JournalEntry]) -> list[int]:
        """What of attempts that nobody wants is still there. A Slurm that has lost its state gives their numbers
        to others: of one that bears our mark, the mark says whose it is."""
        marks = self._marks(entry.uid for entry in journal.values() if entry.uid is not None)
        known = self.client.jobs() if marks else {}
        found: dict[int, None] = {}
        for attempt_id, entry in journal.items():
            if entry.uid is None:
                continue
            submitted_as = (
                attempt_id
                if entry.submitted_as_attempt is None
                else f"{job_id_of_attempt(attempt_id)}.{entry.submitted_as_attempt}"
            )
            numbers = [
                number
                for one in dict.fromkeys((attempt_id, submitted_as))
                for number in self._marked(marks, one, entry.uid, entry.element)
            ]
            if entry.slurm_job_id is not None and not self._is_anothers(entry, marks[entry.uid]):
                numbers.append(entry.slurm_job_id)
            found |= dict.fromkeys(one for one in numbers if one in known and known[one].uid == entry.uid)
        return list(found)

    def _marks(self, uids: Iterable[int]) -> _Marks:
        found: dict[int, dict[str, list[int]]] = {}
        for uid in set(uids):
            found[uid] = defaultdict(list)
            for number, comment in self.client.job_comments(uid):
                found[uid][comment].append(number)
        return found

    def _is_anothers(self, entry: JournalEntry, comments: Mapping[str, Sequence[int]]) -> bool:
        """Its number bears a mark of ours: then it is found by that, if it is its own. Where nothing is noted of
        its array, any array's mark may be its own."""
        ours = attempt_comment(self.instance, "")
        may_be_any = isinstance(entry.slurm_job_id, ArrayElementId) and entry.element is None
        marks = [
            one for one, numbers in comments.items() if entry.slurm_job_id in numbers and one.startswith(ours)
        ]
        return any(not (may_be_any and one.endswith("+")) for one in marks)

    def _marked(self, marks: _Marks, attempt_id: AttemptId, uid: int, element: ArrayElement | None) -> list[int]:
        alone = list(marks[uid].get(attempt_comment(self.instance, attempt_id), ()))
        if element is None:
            return alone
        together = marks[uid].get(array_comment(self.instance, element.first_attempt_id), ())
        return alone + [one for one in together if isinstance(one, ArrayElementId) and one.index == element.index]


def _written(tracked: TrackedJob) -> list[int]:
    number = read_receipt(tracked.receipt_path).slurm_job_id
    return [] if number is None else [number]


def next_attempt(attempt: Attempt) -> Attempt:
    """The one as which a requeued job waits."""
    number = attempt.job.attempt + 1
    job = replace(attempt.job, attempt=number, state=JobState.PENDING, dispatched=True)
    return Attempt(job.attempt_id, job, "")


def with_time_limit(attempt: Attempt, limit_seconds: int) -> Attempt:
    """Never a shorter one."""
    before = attempt.job.time_limit_seconds
    if before is None or before >= limit_seconds:
        return attempt
    return replace(attempt, job=replace(attempt.job, time_limit_seconds=limit_seconds))


def find_changed_time_limit(attempt: Attempt, job: SlurmJob, minutes: int | None) -> tuple[int | None] | None:
    """The limit that somebody has given it with Slurm's own tools; None: nobody has. `minutes`: as we told Slurm.

    Of a job without a limit of ours nothing is said: it has that of its partition.
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
    """Its tasks lie on its nodes in blocks, and share the GPUs there evenly.

    `devices` are those it has on each node, `types` those of all devices by uuid.
    """
    tasks = attempt.job.placement.tasks
    nodes = job.nodes or ("",)
    where = [nodes[rank * len(nodes) // tasks] for rank in range(tasks)]
    places = tuple(
        TaskPlacement(node, _part(node, devices.get(node, ()), where[:rank].count(node), where.count(node)))
        for rank, node in enumerate(where)
    )
    kinds = {types[uuid] for place in places for uuid in place.devices if uuid in types}
    kind = kinds.pop() if len(kinds) == 1 else None
    return AttemptStarted(attempt.id, min(job.started_at or now, now), places, kind)


def _part(node: str, indexes: tuple[int, ...], number: int, of: int) -> tuple[str, ...]:
    """The share of one of several tasks on a node."""
    size = len(indexes) // of
    return tuple(device_uuid(node, index) for index in indexes[number * size : (number + 1) * size])
