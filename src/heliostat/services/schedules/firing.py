"""Firing schedules. A firing and its job are written in one transaction: it happens once, or not at all."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from heliostat.errors import Conflict, EngineUnavailable, HeliostatError, NotFound, StoreUnavailable
from heliostat.models import Caller, JobId
from heliostat.models.schedules import Firing, FiringState, OverlapPolicy, Schedule, ScheduleId, ScheduleState
from heliostat.schedules.timing import MAX_COUNTED_MISSES, CatchUpRule, FiringDecision, decide_firing
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
_TOGETHER = 200
_LATER = timedelta(seconds=2)
_NOT_NOW = (StoreUnavailable, EngineUnavailable)
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class ReconcileTrigger:
    """Why somebody looks at the schedules."""

    ended_job_ids: (
        Collection[JobId] | None
    ) = ()  # jobs that are over since the last look; None: whichever they are
    was_clock_set_back: bool = False


@dataclass(frozen=True, slots=True)
class PreparedFiring:
    """A firing to be written: what would be submitted, or why nothing can be."""

    schedule: Schedule
    firing_decision: FiringDecision
    submission: PreparedSubmission | None = None
    refusal: str | None = None


def reconcile_schedules(context: Context, trigger: ReconcileTrigger) -> datetime | None:
    """Settle what is over, fire all that is due; when the next is due."""
    record_finished_firings(context, trigger.ended_job_ids)
    if trigger.was_clock_set_back:
        handle_clock_set_back(context)
    postponed: set[ScheduleId] = set()
    while True:
        now = context.now()
        with context.store.read() as conn:
            due = stored.list_due_schedules(conn, now, _TOGETHER, postponed)
            next_at = stored.find_next_due_time(conn)
        if not due:
            return now + _LATER if postponed else next_at
        postponed |= _fire_all(context, due, now)


def handle_clock_set_back(context: Context) -> None:
    """The clock was set back: times that will come once more, and have not been fired, are due once more."""
    now = context.now()
    with context.store.read() as conn:
        found = stored.list_schedules_handled_after(conn, now)

    def change(tx: Transaction) -> None:
        for schedule in found:
            next_at = parse_schedule_timing(schedule, now).next_after(now)
            if next_at is None or (schedule.next_at is not None and next_at >= schedule.next_at):
                continue
            if schedule.ends_after is None or schedule.fired < schedule.ends_after:
                state = ScheduleState.ACTIVE
                stored.update_schedule(tx, schedule.id, next_at=next_at, handled_at=now, state=state)

    if found:
        context.store.write(change)


def fire_now(context: Context, owner: Caller, schedule: Schedule, key: str | None = None) -> Firing:
    """A firing by hand, beside those that are due. Raises when its job is not taken."""
    now = context.now()
    request, about = job_request_for(schedule, now), f"run schedule {schedule.id}"
    submission = prepare_submission(context, owner, [request], key, about)

    def change(tx: Transaction) -> Firing:
        submitted = submission(tx)
        if (known := fired.find_firing_of_job(tx.conn, submitted.job_ids[0])) is not None:
            return known  # the same request again
        known_now = stored.find_schedule(tx.conn, schedule.id)
        if known_now is None:
            raise NotFound(f"There is no schedule {schedule.id} any more.", "Somebody has removed it.")
        firing = _firing(schedule, now, now, submitted, by_hand=True)
        stored.update_schedule(tx, schedule.id, fired=known_now.fired + 1)
        return replace(firing, id=fired.add_firing(tx, firing))

    return context.store.write(change)


def _fire_all(context: Context, due: Sequence[Schedule], now: datetime) -> set[ScheduleId]:
    """One change for each, which share transactions; those that cannot be fired just now."""
    orders: list[tuple[Schedule, Future[bool]]] = []
    postponed: set[ScheduleId] = set()
    for schedule in due:
        try:
            prepared = _prepare(context, schedule, now)
        except _NOT_NOW:
            postponed.add(schedule.id)
            continue
        orders.append((schedule, context.store.submit_write(_writing(context, prepared, now))))
    for schedule, order in orders:
        try:
            order.result()
        except _NOT_NOW:
            postponed.add(schedule.id)
    return postponed


def _prepare(context: Context, schedule: Schedule, now: datetime) -> PreparedFiring:
    """Everything that can be looked at before the transaction."""
    verdict = _verdict(schedule, now)
    if verdict.due_at is None:
        return PreparedFiring(schedule, verdict)
    with context.store.read() as conn:
        owner = accounts.find_user(conn, schedule.user)
        earlier = fired.list_unfinished_firings(conn, schedule.id)
    if owner is None or not owner.active:
        return PreparedFiring(schedule, verdict, None, f"the account {schedule.user} is deactivated")
    waits = earlier if schedule.overlap in (OverlapPolicy.QUEUE, OverlapPolicy.REPLACE) else []
    request = job_request_for(schedule, verdict.due_at, waits[-1:])
    try:
        return PreparedFiring(schedule, verdict, prepare_submission(context, caller_for_owner(owner), [request]))
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        return PreparedFiring(schedule, verdict, None, error.message)


def _verdict(schedule: Schedule, now: datetime) -> FiringDecision:
    due_at = schedule.next_at or now
    if schedule.timing is None:
        return FiringDecision(due_at)
    rule = CatchUpRule(schedule.catch_up.value, schedule.epsilon_seconds)
    return decide_firing(parse_schedule_timing(schedule, now), due_at, now, rule)


def _writing(context: Context, prepared: PreparedFiring, now: datetime) -> Callable[[Transaction], bool]:
    planned, verdict = prepared.schedule, prepared.firing_decision

    def change(tx: Transaction) -> bool:
        schedule = stored.find_schedule(tx.conn, planned.id)
        if schedule is None or (schedule.next_at, schedule.version) != (planned.next_at, planned.version):
            return False  # somebody has changed it meanwhile
        if verdict.missed_count and verdict.missed_from is not None:
            _note_missed(tx, schedule, verdict.missed_from, verdict.missed_count, now)
        made = _fire(context, tx, schedule, prepared, now)
        _advance(tx, schedule, verdict.due_at, now, made)
        return True

    return change


def _fire(context: Context, tx: Transaction, schedule: Schedule, prepared: PreparedFiring, now: datetime) -> bool:
    """Whether there is a job of it now that there was not before."""
    due_at = prepared.firing_decision.due_at
    if due_at is None:
        return False
    known = fired.find_firing_by_due_time(tx.conn, schedule.id, due_at)
    if known is not None and known.state is not FiringState.MISSED:
        return False  # the clock was set back, and this one was fired before
    if known is not None:
        fired.remove_firing(tx, known.id)
    earlier = fired.list_unfinished_firings(tx.conn, schedule.id)
    if earlier and schedule.overlap is OverlapPolicy.SKIP:
        reason = f"job {earlier[-1].job_id} of an earlier firing is not over"
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
    when: tuple[datetime, datetime, Sequence[Firing]],
) -> bool:
    due_at, now, earlier = when
    owner = accounts.find_user(tx.conn, schedule.user)
    try:
        if owner is None or not owner.active:
            raise Conflict(f"the account {schedule.user} is deactivated", "An admin can activate it.")
        submitted = submit_in_savepoint(tx, submission)
    except _NOT_NOW:
        raise
    except HeliostatError as error:
        fired.add_firing(tx, Firing(0, schedule.id, due_at, now, FiringState.REFUSED, error.message))
        return False
    if schedule.overlap is OverlapPolicy.REPLACE:
        _cancel_jobs(context, tx, caller_for_owner(owner), earlier)
    fired.add_firing(tx, _firing(schedule, due_at, now, submitted))
    return True


def _cancel_jobs(context: Context, tx: Transaction, owner: Caller, earlier: Sequence[Firing]) -> None:
    jobs = stored_jobs.get_jobs(tx.conn, [number for one in earlier for number in job_ids_of(one)])
    for job in jobs.values():
        if not job.is_terminal:
            cancel_in_transaction(context, owner, tx, job)


def _firing(
    schedule: Schedule, due_at: datetime, now: datetime, submitted: SubmissionResult, by_hand: bool = False
) -> Firing:
    first, last = submitted.job_ids[0], submitted.job_ids[-1]
    state = FiringState.RUNNING
    return Firing(0, schedule.id, due_at, now, state, None, first, last, by_hand=by_hand)


def _note_missed(tx: Transaction, schedule: Schedule, since: datetime, count: int, now: datetime) -> None:
    if fired.find_firing_by_due_time(tx.conn, schedule.id, since) is not None:
        return
    many = f"{count:,} or more" if count >= MAX_COUNTED_MISSES else f"{count:,}"
    times = "time" if count == 1 else "times"
    reason = f"nobody was there to fire it {many} {times}"
    fired.add_firing(tx, Firing(0, schedule.id, since, now, FiringState.MISSED, reason, count=count))


def _advance(tx: Transaction, schedule: Schedule, due_at: datetime | None, now: datetime, made: bool) -> None:
    """To the next time it is due, once this one is written down."""
    count = schedule.fired + made
    is_spent = schedule.ends_after is not None and count >= schedule.ends_after
    next_at = None if is_spent else _next(tx, schedule, due_at or now, now)
    is_over = next_at is None and (is_spent or schedule.timing is not None)
    stored.update_schedule(
        tx,
        schedule.id,
        next_at=next_at,
        handled_at=now,
        last_due_at=due_at or schedule.last_due_at,
        fired=count,
        state=ScheduleState.FINISHED if is_over else schedule.state,
    )
    if count % 100 == 0:
        fired.prune_firings(tx, schedule.id, MAX_FIRINGS_KEPT)


def _next(tx: Transaction, schedule: Schedule, due_at: datetime, now: datetime) -> datetime | None:
    if schedule.timing is not None:
        return parse_schedule_timing(schedule, now).next_after(due_at)
    if not stored.have_all_parents_succeeded(tx.conn, schedule.id):
        return None
    stored.reset_parents(tx, schedule.id)
    return max(now, due_at + _INSTANT)
