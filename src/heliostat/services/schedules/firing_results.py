"""Results of firings: count successes and failures, retry failed jobs, trigger child schedules."""

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
_MIN_BACKOFF_SECONDS = 10
_MAX_BACKOFF_SECONDS = 3600
_RETRIED_STATES = {JobState.FAILED, JobState.TIMED_OUT, JobState.LOST}
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _FiringResult:
    """The combined result of all jobs of a firing."""

    state: FiringState
    at: datetime
    reason: str | None = None


def record_finished_firings(context: Context, ended: Collection[JobId] | None) -> None:
    """Record the results of firings whose jobs have all ended. `ended`: the ended jobs; None: check all
    firings."""
    with context.store.read() as conn:
        firings = (
            fired.list_unfinished_firings(conn)
            if ended is None
            else fired.list_unfinished_firings_of_jobs(conn, ended)
        )
    for firing in firings:
        _record_result(context, firing)


def record_manual_success(context: Context, schedule: Schedule) -> bool:
    """Count a success without a run, so that child schedules can fire. False: the schedule no longer exists."""
    now = context.now()

    def change(tx: Transaction) -> bool:
        exists = stored.find_schedule(tx.conn, schedule.id) is not None
        if exists:
            _count(tx, schedule.id, _FiringResult(FiringState.SUCCEEDED, now), now)
        return exists

    return context.store.write(change)


def _record_result(context: Context, firing: Firing) -> None:
    numbers = range(firing.job_id or 0, (firing.last_job_id or 0) + 1)
    with context.store.read() as conn:
        jobs = list(get_jobs_without_spec(conn, numbers).values())
        schedule = stored.find_schedule(conn, firing.schedule_id)
    if schedule is None or any(not job.is_terminal for job in jobs):
        return
    result = _result_of(jobs, context.now())
    retry = _prepare_retry(context, schedule, firing, jobs) if result.state is FiringState.FAILED else None

    def change(tx: Transaction) -> None:
        current = fired.find_firing(tx.conn, firing.id)
        if current is None or (current.state, current.job_id) != (FiringState.RUNNING, firing.job_id):
            return
        if retry is not None and (submitted := retry(tx)) is not None:
            job_ids = submitted.job_ids
            fired.update_firing(
                tx,
                firing.id,
                job_id=job_ids[0],
                last_job_id=job_ids[-1],
                tries=firing.tries + 1,
                reason=result.reason,
            )
            return
        fired.update_firing(tx, firing.id, state=result.state, ended_at=result.at, reason=result.reason)
        _count(tx, firing.schedule_id, result, context.now())

    context.store.write(change)


def _result_of(jobs: Collection[Job], now: datetime) -> _FiringResult:
    at = max((job.ended_at for job in jobs if job.ended_at), default=now)
    unsuccessful = next((job for job in jobs if job.state is not JobState.COMPLETED), None)
    if unsuccessful is None:
        return _FiringResult(FiringState.SUCCEEDED, at)
    failed = next((job for job in jobs if job.state not in (JobState.COMPLETED, JobState.CANCELLED)), None)
    state = FiringState.CANCELLED if failed is None else FiringState.FAILED
    return _FiringResult(state, at, (failed or unsuccessful).reason)


def _prepare_retry(
    context: Context, schedule: Schedule, firing: Firing, jobs: Collection[Job]
) -> Callable[[Transaction], SubmissionResult | None] | None:
    """Submits another job for the same firing, after a backoff; None: no retry."""
    job = next(iter(jobs), None)
    if job is None or len(jobs) != 1 or job.state not in _RETRIED_STATES or firing.tries > schedule.retries:
        return None
    with context.store.read() as conn:
        owner = accounts.find_user(conn, schedule.user)
    if owner is None or not owner.active:
        return None
    backoff = min(_MAX_BACKOFF_SECONDS, _MIN_BACKOFF_SECONDS * 2 ** (firing.tries - 1))
    request = replace(job_request_for(schedule, firing.due_at), begin=timedelta(seconds=backoff))
    submission = _submission(context, caller_for_owner(owner), request)
    return None if submission is None else lambda tx: _none_if_refused(lambda: submit_in_savepoint(tx, submission))


def _submission(context: Context, owner: Caller, request: JobRequest) -> PreparedSubmission | None:
    return _none_if_refused(lambda: prepare_submission(context, owner, [request]))


def _none_if_refused(function: Callable[[], T]) -> T | None:
    try:
        return function()
    except (StoreUnavailable, EngineUnavailable):
        raise
    except HeliostatError:
        return None


def _count(tx: Transaction, schedule_id: ScheduleId, result: _FiringResult, now: datetime) -> None:
    """Called once per firing, in the transaction that ends its running state."""
    schedule = stored.find_schedule(tx.conn, schedule_id)
    if schedule is None or result.state is FiringState.CANCELLED:
        return
    if result.state is FiringState.SUCCEEDED:
        changes = {"succeeded": schedule.succeeded + 1, "succeeded_at": result.at, "failed_in_a_row": 0}
    else:
        consecutive = schedule.failed_in_a_row + 1
        changes = {"failed": schedule.failed + 1, "failed_at": result.at, "failed_in_a_row": consecutive}
    stored.update_schedule(tx, schedule_id, **changes)
    if result.state is FiringState.SUCCEEDED or schedule.soft_error:
        for child_id in stored.mark_parent_succeeded(tx, schedule_id):
            _make_due(tx, child_id, now)


def _make_due(tx: Transaction, child_id: ScheduleId, now: datetime) -> None:
    """Make the child due: all its parents have succeeded since its last firing."""
    child = stored.find_schedule(tx.conn, child_id)
    if child is None or child.state is not ScheduleState.ACTIVE or child.next_at is not None:
        return
    stored.reset_parents(tx, child_id)
    due_at = now if child.last_due_at is None else max(now, child.last_due_at + _INSTANT)
    stored.update_schedule(tx, child_id, next_at=due_at)
