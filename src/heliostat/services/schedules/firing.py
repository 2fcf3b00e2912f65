"""Firing of schedules. A firing and its job are written in one transaction, so each due time fires at most
once."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, NotFound, StoreUnavailable
from heliostat.models import Caller, JobId
from heliostat.models.schedules import Firing, FiringState, OverlapPolicy, Schedule, ScheduleId, ScheduleState
from heliostat.schedules.due_times import MAX_COUNTED_MISSES, CatchUpRule, FiringDecision, decide_firing
from heliostat.services.accounts.required_accounts import is_unix_user_missing, project_closed_reason
from heliostat.services.context import Context
from heliostat.services.jobs.control import cancel_in_transaction
from heliostat.services.jobs.submission import SubmissionResult, prepare_submission
from heliostat.services.schedules.firing_jobs import (
    PreparedSubmission,
    caller_for_owner,
    job_ids_of,
    job_request_for,
    parse_schedule_timing,
    submit_in_savepoint,
)
from heliostat.services.schedules.firing_results import record_finished_firings
from heliostat.store import accounts
from heliostat.store import firings as fired
from heliostat.store import jobs as stored_jobs
from heliostat.store import schedules as stored
from heliostat.store.database import Transaction

MAX_FIRINGS_KEPT = 1000  # firings of each schedule
_BATCH_SIZE = 200
_RETRY_DELAY = timedelta(seconds=2)
_TEMPORARY_ERRORS = (StoreUnavailable, EngineUnavailable)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ReconcileTrigger:
    """Why the schedules are reconciled."""

    ended_job_ids: Collection[JobId] | None = ()  # jobs that ended since the last time; None: check all
    was_clock_set_back: bool = False


@dataclass(frozen=True, slots=True)
class PreparedFiring:
    """A firing to write: its submission, or the reason why it is refused."""

    schedule: Schedule
    firing_decision: FiringDecision
    submission: PreparedSubmission | None = None
    refusal: str | None = None
    pauses: bool = False  # later firings would be refused, too


def reconcile_schedules(context: Context, trigger: ReconcileTrigger) -> datetime | None:
    """Record ended firings and fire all due schedules. Returns when the next one is due."""
    record_finished_firings(context, trigger.ended_job_ids)
    if trigger.was_clock_set_back:
        handle_clock_set_back(context)
    postponed: set[ScheduleId] = set()
    while True:
        now = context.now()
        with context.store.read() as conn:
            due = stored.list_due_schedules(conn, now, _BATCH_SIZE, postponed)
            next_at = stored.find_next_due_time(conn)
        if not due:
            return now + _RETRY_DELAY if postponed else next_at
        postponed |= _fire_all(context, due, now)


def handle_clock_set_back(context: Context) -> None:
    """Make times due again that lie in the future again and have not been fired."""
    now = context.now()
    with context.store.read() as conn:
        schedules = stored.list_schedules_handled_after(conn, now)

    def change(tx: Transaction) -> None:
        for schedule in schedules:
            next_at = parse_schedule_timing(schedule, now).next_after(now)
            if next_at is None or (schedule.next_at is not None and next_at >= schedule.next_at):
                continue
            if schedule.ends_after is None or schedule.fired < schedule.ends_after:
                state = ScheduleState.ACTIVE
                stored.update_schedule(tx, schedule.id, next_at=next_at, handled_at=now, state=state)

    if schedules:
        context.store.write(change)


def fire_now(context: Context, owner: Caller, schedule: Schedule, key: str | None = None) -> Firing:
    """A manual firing, in addition to the due ones. Raises if its job is refused."""
    now = context.now()
    request, about = job_request_for(schedule, now), f"run schedule {schedule.id}"
    submission = prepare_submission(context, owner, [request], key, about)

    def change(tx: Transaction) -> Firing:
        submitted = submission(tx)
        if (known := fired.find_firing_of_job(tx.conn, submitted.job_ids[0])) is not None:
            return known  # a repeated request
        current = stored.find_schedule(tx.conn, schedule.id)
        if current is None:
            raise NotFound(f"Schedule {schedule.id} has just been removed.", "`helio schedule list` lists yours.")
        firing = _firing(schedule, now, now, submitted, by_hand=True)
        stored.update_schedule(tx, schedule.id, fired=current.fired + 1)
        return replace(firing, id=fired.add_firing(tx, firing))

    return context.store.write(change)


def _fire_all(context: Context, due: Sequence[Schedule], now: datetime) -> set[ScheduleId]:
    """One write per schedule; the store groups them into transactions. Returns the schedules to fire later."""
    writes: list[tuple[Schedule, Future[bool]]] = []
    postponed: set[ScheduleId] = set()
    for schedule in due:
        try:
            prepared = _prepare(context, schedule, now)
        except _TEMPORARY_ERRORS:
            postponed.add(schedule.id)
            continue
        writes.append((schedule, context.store.submit_write(_write_firing(context, prepared, now))))
    for schedule, write in writes:
        try:
            write.result()
        except _TEMPORARY_ERRORS:
            postponed.add(schedule.id)
    return postponed


def _prepare(context: Context, schedule: Schedule, now: datetime) -> PreparedFiring:
    """All checks that need no transaction."""
    decision = _decide(schedule, now)
    if decision.due_at is None:
        return PreparedFiring(schedule, decision)
    with context.store.read() as conn:
        owner = accounts.find_user(conn, schedule.user)
        earlier = fired.list_unfinished_firings(conn, schedule.id)
    if owner is None or not owner.active:
        return PreparedFiring(schedule, decision, None, f"the account {schedule.user} is deactivated")
    if is_unix_user_missing(context, owner):
        return PreparedFiring(schedule, decision, None, f"the Unix user {owner.unix_user} no longer exists")
    if closed := project_closed_reason(context, schedule.project):
        return PreparedFiring(schedule, decision, None, f"{closed}. The schedule is paused", pauses=True)
    unfinished_before = earlier if schedule.overlap in (OverlapPolicy.QUEUE, OverlapPolicy.REPLACE) else []
    request = job_request_for(schedule, decision.due_at, unfinished_before[-1:])
    try:
        return PreparedFiring(schedule, decision, prepare_submission(context, caller_for_owner(owner), [request]))
    except _TEMPORARY_ERRORS:
        raise
    except HeliostatError as error:
        return PreparedFiring(schedule, decision, None, error.message)


def _decide(schedule: Schedule, now: datetime) -> FiringDecision:
    due_at = schedule.next_at or now
    if schedule.timing is None:
        return FiringDecision(due_at)
    rule = CatchUpRule(schedule.catch_up.value, schedule.epsilon_seconds)
    return decide_firing(parse_schedule_timing(schedule, now), due_at, now, rule)


def _write_firing(context: Context, prepared: PreparedFiring, now: datetime) -> Callable[[Transaction], bool]:
    planned, decision = prepared.schedule, prepared.firing_decision

    def change(tx: Transaction) -> bool:
        schedule = stored.find_schedule(tx.conn, planned.id)
        if schedule is None or (schedule.next_at, schedule.version) != (planned.next_at, planned.version):
            return False  # changed by another request
        if decision.missed_count and decision.missed_from is not None:
            _add_missed(tx, schedule, decision.missed_from, decision.missed_count, now)
        has_job = _fire(context, tx, schedule, prepared, now)
        _advance(tx, schedule, decision.due_at, now, has_job)
        if prepared.pauses:
            stored.update_schedule(tx, schedule.id, state=ScheduleState.PAUSED, next_at=None)
        return True

    return change


def _fire(context: Context, tx: Transaction, schedule: Schedule, prepared: PreparedFiring, now: datetime) -> bool:
    """Whether a new job was submitted."""
    due_at = prepared.firing_decision.due_at
    if due_at is None:
        return False
    known = fired.find_firing_by_due_time(tx.conn, schedule.id, due_at)
    if known is not None and known.state is not FiringState.MISSED:
        return False  # fired before the clock was set back
    if known is not None:
        fired.remove_firing(tx, known.id)
    earlier = fired.list_unfinished_firings(tx.conn, schedule.id)
    if earlier and schedule.overlap is OverlapPolicy.SKIP and not prepared.pauses:
        reason = f"job {earlier[-1].job_id} of an earlier firing has not ended"
        fired.add_firing(tx, Firing(0, schedule.id, due_at, now, FiringState.SKIPPED, reason))
        return False
    if prepared.submission is None:
        fired.add_firing(tx, Firing(0, schedule.id, due_at, now, FiringState.REFUSED, prepared.refusal))
        return False
    return _submit(context, tx, schedule, prepared.submission, (due_at, now, earlier))


def _submit(
    context: Context,
    tx: Transaction,
    schedule: Schedule,
    submission: PreparedSubmission,
    times_and_earlier: tuple[datetime, datetime, Sequence[Firing]],
) -> bool:
    due_at, now, earlier = times_and_earlier
    owner = accounts.find_user(tx.conn, schedule.user)
    try:
        if owner is None or not owner.active:
            raise Conflict(f"the account {schedule.user} is deactivated", "An admin can activate it.")
        submitted = submit_in_savepoint(tx, submission)
    except _TEMPORARY_ERRORS:
        raise
    except HeliostatError as error:
        fired.add_firing(tx, Firing(0, schedule.id, due_at, now, FiringState.REFUSED, error.message))
        return False
    if schedule.overlap is OverlapPolicy.REPLACE:
        _cancel_jobs(context, tx, caller_for_owner(owner), earlier)
    fired.add_firing(tx, _firing(schedule, due_at, now, submitted))
    return True


def _cancel_jobs(context: Context, tx: Transaction, owner: Caller, earlier: Sequence[Firing]) -> None:
    jobs = stored_jobs.get_jobs(tx.conn, [job_id for firing in earlier for job_id in job_ids_of(firing)])
    for job in jobs.values():
        if not job.is_terminal:
            cancel_in_transaction(context, owner, tx, job)


def _firing(
    schedule: Schedule, due_at: datetime, now: datetime, submitted: SubmissionResult, by_hand: bool = False
) -> Firing:
    first, last = submitted.job_ids[0], submitted.job_ids[-1]
    state = FiringState.RUNNING
    return Firing(0, schedule.id, due_at, now, state, None, first, last, by_hand=by_hand)


def _add_missed(tx: Transaction, schedule: Schedule, since: datetime, count: int, now: datetime) -> None:
    if fired.find_firing_by_due_time(tx.conn, schedule.id, since) is not None:
        return
    number = f"{count:,} or more" if count >= MAX_COUNTED_MISSES else f"{count:,}"
    times = "due time was" if count == 1 else "due times were"
    reason = f"{number} {times} not fired in time"
    fired.add_firing(tx, Firing(0, schedule.id, since, now, FiringState.MISSED, reason, count=count))


def _advance(tx: Transaction, schedule: Schedule, due_at: datetime | None, now: datetime, has_job: bool) -> None:
    """Set the next due time."""
    count = schedule.fired + has_job
    is_exhausted = schedule.ends_after is not None and count >= schedule.ends_after
    next_at = None if is_exhausted else _next_due(tx, schedule, due_at or now, now)
    is_finished = next_at is None and (is_exhausted or schedule.timing is not None)
    stored.update_schedule(
        tx,
        schedule.id,
        next_at=next_at,
        handled_at=now,
        last_due_at=due_at or schedule.last_due_at,
        fired=count,
        state=ScheduleState.FINISHED if is_finished else schedule.state,
    )
    if count % 100 == 0:
        fired.prune_firings(tx, schedule.id, MAX_FIRINGS_KEPT)


def _next_due(tx: Transaction, schedule: Schedule, due_at: datetime, now: datetime) -> datetime | None:
    if schedule.timing is not None:
        return parse_schedule_timing(schedule, now).next_after(due_at)
    if not stored.have_all_parents_succeeded(tx.conn, schedule.id):
        return None
    stored.reset_parents(tx, schedule.id)
    return max(now, due_at + _INSTANT)
