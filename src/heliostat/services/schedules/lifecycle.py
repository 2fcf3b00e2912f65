"""Schedules: create, list, edit, pause, resume, run and remove. Only the owner can edit a schedule; managers of
the project can see, pause and remove it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, User
from heliostat.models.dependencies import find_cycle
from heliostat.models.schedules import Firing, Schedule, ScheduleId, ScheduleState
from heliostat.schedules.due_times import list_next_times
from heliostat.services.context import Context
from heliostat.services.permissions import write_as_caller
from heliostat.services.schedules import firing
from heliostat.services.schedules.firing_jobs import caller_for_owner, parse_schedule_timing
from heliostat.services.schedules.schedule_requests import (
    ScheduleRequest,
    draft_schedule,
    just_before_this_second,
    parse_allowed_timing,
    schedule_request_of,
)
from heliostat.store import accounts
from heliostat.store import firings as fired
from heliostat.store import schedules as stored
from heliostat.store.database import Transaction

MAX_FIRINGS_SHOWN = 50
_INSTANT = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class TimingPreview:
    """When a schedule would fire if it were created now, and its time zone."""

    times: tuple[datetime, ...]
    zone: str


def preview_timing(context: Context, caller: Caller, timing: str, zone: str | None, count: int) -> TimingPreview:
    now = context.now()
    parsed = parse_allowed_timing(context, timing, zone, now)
    return TimingPreview(tuple(list_next_times(parsed, just_before_this_second(now), count)), parsed.zone)


def create_schedule(context: Context, caller: Caller, desired: ScheduleRequest) -> Schedule:
    """Its job is checked as if it were submitted now."""
    draft = draft_schedule(context, caller, desired)

    def change(tx: Transaction, actor: User) -> Schedule:
        if stored.find_schedule_by_name(tx.conn, actor.name, draft.name) is not None:
            raise Conflict(
                f"You already have a schedule {draft.name}.",
                "Choose another name, or edit the existing one: helio schedule edit.",
            )
        if stored.count_schedules_of_user(tx.conn, actor.name) >= context.settings.queue.max_schedules_per_user:
            maximum = context.settings.queue.max_schedules_per_user
            raise Conflict(f"You have {maximum} schedules, the maximum.", "Remove one first.")
        parents = _parents(tx.conn, actor.name, desired, None)
        number = stored.add_schedule(tx, replace(draft, parents=parents))
        accounts.add_audit_entry(
            tx, caller, "schedule.create", f"schedule {number}", _audit_details(draft), context.now()
        )
        return _require_found(stored.find_schedule(tx.conn, number), draft.name)

    return write_as_caller(context, caller, change)


def list_schedules(context: Context, caller: Caller, *, all_users: bool = False) -> list[Schedule]:
    """The caller's own; with `all_users`, also those of projects the caller manages, for admins all."""
    user = caller.user
    with context.store.read() as conn:
        if not all_users:
            return stored.list_schedules(conn, user=user.name)
        if user.is_admin:
            return stored.list_schedules(conn)
        managed = [m.project for m in user.memberships if user.may_manage(m.project)]
        return stored.list_schedules(conn, user=user.name, projects=managed)


def get_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """By id, or the caller's own by name. Raises NotFound if the caller may not see it."""
    with context.store.read() as conn:
        return _visible(conn, caller, reference)


def next_times(context: Context, schedule: Schedule, count: int) -> list[datetime]:
    """The next firing times; empty while it is paused."""
    if schedule.timing is None or schedule.next_at is None or schedule.state is not ScheduleState.ACTIVE:
        return [] if schedule.next_at is None else [schedule.next_at]
    remaining = count if schedule.ends_after is None else min(count, schedule.ends_after - schedule.fired)
    return list_next_times(
        parse_schedule_timing(schedule, context.now()), schedule.next_at - _INSTANT, max(0, remaining)
    )


def list_firings(context: Context, schedule: Schedule, limit: int, before: datetime | None = None) -> list[Firing]:
    with context.store.read() as conn:
        return fired.list_firings(conn, schedule.id, limit, before)


def edit_schedule(context: Context, caller: Caller, reference: str, changes: Mapping[str, Any]) -> Schedule:
    """Changes only the given fields. A new timing applies at once."""
    schedule = get_schedule(context, caller, reference)
    _check_owner(caller, schedule)
    desired = replace(schedule_request_of(schedule), **changes)
    draft = draft_schedule(context, caller, desired)
    keeps_time = (draft.timing, draft.zone) == (schedule.timing, schedule.zone) and schedule.next_at is not None

    def change(tx: Transaction, actor: User) -> Schedule:
        current = _require_found(stored.find_schedule(tx.conn, schedule.id), schedule.name)
        if current.version != schedule.version:
            raise Conflict(
                "Another request has just changed this schedule.",
                f"See `helio schedule show {schedule.id}` and try again.",
            )
        other = stored.find_schedule_by_name(tx.conn, actor.name, draft.name)
        if other is not None and other.id != schedule.id:
            raise Conflict(f"You already have a schedule {draft.name}.", "Choose another name.")
        stored.set_schedule_parents(tx, schedule.id, _parents(tx.conn, actor.name, desired, schedule))
        values = {name: getattr(draft, name) for name in _EDITABLE}
        if keeps_time and draft.state is ScheduleState.ACTIVE:
            values["next_at"] = current.next_at
        stored.update_schedule(tx, schedule.id, **values, version=schedule.version + 1)
        accounts.add_audit_entry(
            tx, caller, "schedule.edit", f"schedule {schedule.id}", _audit_details(draft), context.now()
        )
        return _require_found(stored.find_schedule(tx.conn, schedule.id), schedule.name)

    return write_as_caller(context, caller, change)


def pause_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """Stop firing until it is resumed; existing jobs continue."""
    return _set_state(context, caller, reference, ScheduleState.PAUSED)


def resume_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """Fire again from now on; times missed during the pause are not fired."""
    return _set_state(context, caller, reference, ScheduleState.ACTIVE)


def run_schedule(context: Context, caller: Caller, reference: str, key: str | None = None) -> Firing:
    """Fire once now, in addition to the due times. For its owner."""
    schedule = get_schedule(context, caller, reference)
    _check_owner(caller, schedule)
    return firing.fire_now(context, caller_for_owner(caller.user), schedule, key)


def remove_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """Also removes the records of its firings; their jobs stay."""

    def change(tx: Transaction, actor: User) -> Schedule:
        schedule = _visible(tx.conn, replace(caller, user=actor), reference)
        if children := stored.list_child_schedules(tx.conn, schedule.id):
            names = [child.name for number in children if (child := stored.find_schedule(tx.conn, number))]
            raise Conflict(
                f"Schedule {schedule.name} is a parent of {', '.join(names[:5])}.",
                "Remove these schedules first, or edit their parents.",
            )
        stored.remove_schedule(tx, schedule.id)
        accounts.add_audit_entry(
            tx, caller, "schedule.remove", f"schedule {schedule.id}", _audit_details(schedule), context.now()
        )
        return schedule

    return write_as_caller(context, caller, change)


_EDITABLE = (
    "name",
    "project",
    "state",
    "timing",
    "zone",
    "request",
    "overlap",
    "catch_up",
    "epsilon_seconds",
    "retries",
    "ends_after",
    "soft_error",
    "next_at",
    "document",
)


def _parents(
    conn: Connection, user: str, desired: ScheduleRequest, child: Schedule | None
) -> tuple[ScheduleId, ...]:
    parents = [_own(conn, user, reference) for reference in desired.parents]
    if any(parent is None for parent in parents):
        missing = next(name for name, parent in zip(desired.parents, parents, strict=True) if parent is None)
        raise invalid_field("parents", f"you have no schedule {safe_repr(missing)}")
    ids = tuple(dict.fromkeys(parent.id for parent in parents if parent is not None))
    if child is not None:
        _check_cycle(conn, user, child, ids)
    return ids


def _check_cycle(conn: Connection, user: str, child: Schedule, parents: Sequence[ScheduleId]) -> None:
    known = {schedule.id: schedule for schedule in stored.list_schedules(conn, user=user)}
    edges: dict[int, Sequence[int]] = {number: schedule.parents for number, schedule in known.items()}
    if cycle := find_cycle({**edges, child.id: parents}):
        names = " → ".join(known[number].name if number in known else str(number) for number in cycle)
        raise invalid_field("parents", f"form a cycle: {names}")


def _own(conn: Connection, user: str, reference: str) -> Schedule | None:
    if not reference.isdecimal():
        return stored.find_schedule_by_name(conn, user, reference)
    schedule = stored.find_schedule(conn, int(reference[:15]))
    return schedule if schedule is not None and schedule.user == user else None


def _visible(conn: Connection, caller: Caller, reference: str) -> Schedule:
    if not reference.isdecimal():
        return _require_found(stored.find_schedule_by_name(conn, caller.user.name, reference), reference)
    schedule = stored.find_schedule(conn, int(reference[:15]))
    visible = schedule is not None and (
        schedule.user == caller.user.name or caller.user.may_manage(schedule.project)
    )
    return _require_found(schedule if visible else None, reference)


def _require_found(schedule: Schedule | None, reference: str) -> Schedule:
    if schedule is None:
        raise NotFound(f"There is no schedule {safe_repr(reference)}.", "`helio schedule list` lists yours.")
    return schedule


def _check_owner(caller: Caller, schedule: Schedule) -> None:
    """Only the owner: its jobs run with the owner's permissions."""
    if schedule.user != caller.user.name:
        raise Forbidden(
            f"Schedule {schedule.id} belongs to {schedule.user}.",
            f"You can pause or remove it, or ask {schedule.user}.",
        )


def _set_state(context: Context, caller: Caller, reference: str, state: ScheduleState) -> Schedule:
    now = context.now()

    def change(tx: Transaction, actor: User) -> Schedule:
        schedule = _visible(tx.conn, replace(caller, user=actor), reference)
        if schedule.state is state:
            return schedule
        if schedule.state is ScheduleState.FINISHED:
            raise Conflict(f"Schedule {schedule.name} is finished.", "Set a new timing: helio schedule edit.")
        if state is ScheduleState.ACTIVE:
            _check_owner(replace(caller, user=actor), schedule)
        has_next = state is ScheduleState.ACTIVE and schedule.timing is not None
        next_at = parse_schedule_timing(schedule, now).next_after(now) if has_next else None
        new_state = ScheduleState.FINISHED if has_next and next_at is None else state
        stored.update_schedule(tx, schedule.id, state=new_state, next_at=next_at, version=schedule.version + 1)
        accounts.add_audit_entry(tx, caller, f"schedule.{_VERBS[state]}", f"schedule {schedule.id}", {}, now)
        return _require_found(stored.find_schedule(tx.conn, schedule.id), schedule.name)

    return write_as_caller(context, caller, change)


_VERBS = {ScheduleState.ACTIVE: "resume", ScheduleState.PAUSED: "pause"}


def _audit_details(schedule: Schedule) -> dict[str, object]:
    return {
        "name": schedule.name,
        "user": schedule.user,
        "schedule": schedule.timing,
        "zone": schedule.zone,
        "state": schedule.state.value,
    }
