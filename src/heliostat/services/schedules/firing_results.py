"""What became of the jobs of schedules: counted once, tried again where that was asked for, told to children."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar

from heliostat.errors import EngineUnavailable, HeliostatError, StoreUnavailable
from heliostat.models import Caller, Job, JobId, JobRequest, JobState
from heliostat.models.schedules import Firing, FiringState, Schedule, ScheduleId, ScheduleState
from heliostat.services.context import Context
from heliostat.services.jobs.submission import SubmissionResult, prepare_submission
from heliostat.services.schedules.firing_jobs import (
    PreparedSubmission,
    caller_for_owner,
    job_request_for,
    submit_in_savepoint,
)
from heliostat.store import accounts
from heliostat.store import firings as fired
from heliostat.store import schedules as stored
from heliostat.store.database import Transaction
from heliostat.store.jobs import get_jobs_without_spec

T = TypeVar("T")
_FIRST_WAIT_SECONDS = 10
_LONGEST_WAIT_SECONDS = 3600
_WORTH_A_RETRY = {JobState.FAILED, JobState.TIMED_OUT, JobState.LOST}
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _End:
    """How all jobs of a firing ended."""

    state: FiringState
    at: datetime
    reason: str | None = None


def record_finished_firings(context: Context, ended: Collection[JobId] | None) -> None:
    """Those firings whose jobs are over: of these jobs, or of any."""
    with context.store.read() as conn:
        found = (
            fired.list_unfinished_firings(conn)
            if ended is None
            else fired.list_unfinished_firings_of_jobs(conn, ended)
        )
    for firing in found:
        _settle_one(context, firing)


def record_manual_success(context: Context, schedule: Schedule) -> bool:
    """Somebody says that it has succeeded, without a run: counted as one, its children may fire. Whether it was
    still there."""
    now = context.now()

    def change(tx: Transaction) -> bool:
        is_there = stored.find_schedule(tx.conn, schedule.id) is not None
        if is_there:
            _count(tx, schedule.id, _End(FiringState.SUCCEEDED, now), now)
        return is_there

    return context.store.write(change)


def _settle_one(context: Context, firing: Firing) -> None:
    numbers = range(firing.job_id or 0, (firing.last_job_id or 0) + 1)
    with context.store.read() as conn:
        jobs = list(get_jobs_without_spec(conn, numbers).values())
        schedule = stored.find_schedule(conn, firing.schedule_id)
    if schedule is None or any(not job.is_terminal for job in jobs):
        return
    end = _end_of(jobs, context.now())
    again = _try_again(context, schedule, firing, jobs) if end.state is FiringState.FAILED else None

    def change(tx: Transaction) -> None:
        now_known = fired.find_firing(tx.conn, firing.id)
        if now_known is None or (now_known.state, now_known.job_id) != (FiringState.RUNNING, firing.job_id):
            return
        if again is not None and (submitted := again(tx)) is not None:
            job_ids = submitted.job_ids
            fired.update_firing(
                tx,
                firing.id,
                job_id=job_ids[0],
                last_job_id=job_ids[-1],
                tries=firing.tries + 1,
                reason=end.reason,
            )
            return
        fired.update_firing(tx, firing.id, state=end.state, ended_at=end.at, reason=end.reason)
        _count(tx, firing.schedule_id, end, context.now())

    context.store.write(change)


def _end_of(jobs: Collection[Job], now: datetime) -> _End:
    at = max((job.ended_at for job in jobs if job.ended_at), default=now)
    bad = next((job for job in jobs if job.state is not JobState.COMPLETED), None)
    if bad is None:
        return _End(FiringState.SUCCEEDED, at)
    failed = next((job for job in jobs if job.state not in (JobState.COMPLETED, JobState.CANCELLED)), None)
    state = FiringState.CANCELLED if failed is None else FiringState.FAILED
    return _End(state, at, (failed or bad).reason)


def _try_again(
    context: Context, schedule: Schedule, firing: Firing, jobs: Collection[Job]
) -> Callable[[Transaction], SubmissionResult | None] | None:
    """A second job for the same firing, a while later; None: it is not worth it, or not possible."""
    job = next(iter(jobs), None)
    if job is None or len(jobs) != 1 or job.state not in _WORTH_A_RETRY or firing.tries > schedule.retries:
        return None
    with context.store.read() as conn:
        owner = accounts.find_user(conn, schedule.user)
    if owner is None or not owner.active:
        return None
    wait = min(_LONGEST_WAIT_SECONDS, _FIRST_WAIT_SECONDS * 2 ** (firing.tries - 1))
    request = replace(job_request_for(schedule, firing.due_at), begin=timedelta(seconds=wait))
    submission = _submission(context, caller_for_owner(owner), request)
    return None if submission is None else lambda tx: _unless_refused(lambda: submit_in_savepoint(tx, submission))


def _submission(context: Context, owner: Caller, request: JobRequest) -> PreparedSubmission | None:
    return _unless_refused(lambda: prepare_submission(context, owner, [request]))


def _unless_refused(act: Callable[[], T]) -> T | None:
    try:
        return act()
    except (StoreUnavailable, EngineUnavailable):
        raise
    except HeliostatError:
        return None


def _count(tx: Transaction, schedule_id: ScheduleId, end: _End, now: datetime) -> None:
    """Once for each firing: whoever calls has just moved it out of its running state."""
    schedule = stored.find_schedule(tx.conn, schedule_id)
    if schedule is None or end.state is FiringState.CANCELLED:
        return
    if end.state is FiringState.SUCCEEDED:
        counted = {"succeeded": schedule.succeeded + 1, "succeeded_at": end.at, "failed_in_a_row": 0}
    else:
        in_a_row = schedule.failed_in_a_row + 1
        counted = {"failed": schedule.failed + 1, "failed_at": end.at, "failed_in_a_row": in_a_row}
    stored.update_schedule(tx, schedule_id, **counted)
    if end.state is FiringState.SUCCEEDED or schedule.soft_error:
        for child_id in stored.mark_parent_succeeded(tx, schedule_id):
            _let_fire(tx, child_id, now)


def _let_fire(tx: Transaction, child_id: ScheduleId, now: datetime) -> None:
    """All its parents have succeeded since it fired last: it is due."""
    child = stored.find_schedule(tx.conn, child_id)
    if child is None or child.state is not ScheduleState.ACTIVE or child.next_at is not None:
        return
    stored.reset_parents(tx, child_id)
    due_at = now if child.last_due_at is None else max(now, child.last_due_at + _INSTANT)
    stored.update_schedule(tx, child_id, next_at=due_at)
