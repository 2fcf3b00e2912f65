"""Making, changing and removing schedules. Theirs are the owner's; managers of the project see and stop them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection

from heliostat.errors import Conflict, Forbidden, NotFound, invalid_field, safe_repr
from heliostat.models import Caller, User
from heliostat.models.dependencies import find_cycle
from heliostat.models.schedules import Firing, Schedule, ScheduleId, ScheduleState
from heliostat.schedules.timing import list_next_times
from heliostat.services.context import Context
from heliostat.services.permissions import write_as_caller
from heliostat.services.schedules import firing
from heliostat.services.schedules.firing_jobs import caller_for_owner, parse_schedule_timing
from heliostat.services.schedules.requests import (
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


def preview_times(context: Context, caller: Caller, timing: str, zone: str | None, count: int) -> list[datetime]:
    """When it would fire, were it made now."""
    now = context.now()
    read = parse_allowed_timing(context, timing, zone, now)
    return list_next_times(read, just_before_this_second(now), count)


def create_schedule(context: Context, caller: Caller, wish: ScheduleRequest) -> Schedule:
    """All its job needs is checked as if it were submitted now."""
    made = draft_schedule(context, caller, wish)

    def change(tx: Transaction, actor: User) -> Schedule:
        if stored.find_schedule_by_name(tx.conn, actor.name, made.name) is not None:
            raise Conflict(
                f"You have a schedule {made.name} already.",
                "Choose another name, or change that one: schedule edit.",
            )
        if stored.count_schedules_of_user(tx.conn, actor.name) >= context.settings.queue.max_schedules_per_user:
            most = context.settings.queue.max_schedules_per_user
            raise Conflict(f"You have {most} schedules; more are not allowed here.", "Remove one first.")
        parents = _parents(tx.conn, actor.name, wish, None)
        number = stored.add_schedule(tx, replace(made, parents=parents))
        accounts.add_audit_entry(tx, caller, "schedule.create", f"schedule {number}", _told(made), context.now())
        return _there(stored.find_schedule(tx.conn, number), made.name)

    return write_as_caller(context, caller, change)


def list_schedules(context: Context, caller: Caller, *, all_users: bool = False) -> list[Schedule]:
    """One's own; with `all_users`, also those of projects one manages, for admins all."""
    user = caller.user
    with context.store.read() as conn:
        if not all_users:
            return stored.list_schedules(conn, user=user.name)
        if user.is_admin:
            return stored.list_schedules(conn)
        managed = [one.project for one in user.memberships if user.may_manage(one.project)]
        return stored.list_schedules(conn, user=user.name, projects=managed)


def get_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """By number, or one's own by name. Those one may not see do not exist."""
    with context.store.read() as conn:
        return _visible(conn, caller, reference)


def next_times(context: Context, schedule: Schedule, count: int) -> list[datetime]:
    """What it would do from now on; nothing while it is paused."""
    if schedule.timing is None or schedule.next_at is None or schedule.state is not ScheduleState.ACTIVE:
        return [] if schedule.next_at is None else [schedule.next_at]
    left = count if schedule.ends_after is None else min(count, schedule.ends_after - schedule.fired)
    return list_next_times(
        parse_schedule_timing(schedule, context.now()), schedule.next_at - _INSTANT, max(0, left)
    )


def list_firings(context: Context, schedule: Schedule, limit: int, before: datetime | None = None) -> list[Firing]:
    with context.store.read() as conn:
        return fired.list_firings(conn, schedule.id, limit, before)


def edit_schedule(context: Context, caller: Caller, reference: str, changes: Mapping[str, Any]) -> Schedule:
    """Only what is given changes. A new time takes the place of the old one at once."""
    found = get_schedule(context, caller, reference)
    _check_owner(caller, found)
    wish = replace(schedule_request_of(found), **changes)
    made = draft_schedule(context, caller, wish)
    keeps_time = (made.timing, made.zone) == (found.timing, found.zone) and found.next_at is not None

    def change(tx: Transaction, actor: User) -> Schedule:
        now_known = _there(stored.find_schedule(tx.conn, found.id), found.name)
        if now_known.version != found.version:
            raise Conflict("Somebody has changed this schedule meanwhile.", "Look at it and try again.")
        other = stored.find_schedule_by_name(tx.conn, actor.name, made.name)
        if other is not None and other.id != found.id:
            raise Conflict(f"You have a schedule {made.name} already.", "Choose another name.")
        stored.set_schedule_parents(tx, found.id, _parents(tx.conn, actor.name, wish, found))
        values = {name: getattr(made, name) for name in _EDITABLE}
        if keeps_time and made.state is ScheduleState.ACTIVE:
            values["next_at"] = now_known.next_at
        stored.update_schedule(tx, found.id, **values, version=found.version + 1)
        accounts.add_audit_entry(tx, caller, "schedule.edit", f"schedule {found.id}", _told(made), context.now())
        return _there(stored.find_schedule(tx.conn, found.id), found.name)

    return write_as_caller(context, caller, change)


def pause_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """It fires no more until it is resumed; jobs that are there go on."""
    return _switch(context, caller, reference, ScheduleState.PAUSED)


def resume_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """From now on: what was due meanwhile is not made up for."""
    return _switch(context, caller, reference, ScheduleState.ACTIVE)


def run_schedule(context: Context, caller: Caller, reference: str, key: str | None = None) -> Firing:
    """Once now, besides what is due; as its owner."""
    found = get_schedule(context, caller, reference)
    _check_owner(caller, found)
    return firing.fire_now(context, caller_for_owner(caller.user), found, key)


def remove_schedule(context: Context, caller: Caller, reference: str) -> Schedule:
    """With what is kept of its firings; their jobs stay."""

    def change(tx: Transaction, actor: User) -> Schedule:
        found = _visible(tx.conn, replace(caller, user=actor), reference)
        if children := stored.list_child_schedules(tx.conn, found.id):
            names = [one.name for number in children if (one := stored.find_schedule(tx.conn, number))]
            raise Conflict(
                f"Schedule {found.name} is a parent of {', '.join(names[:5])}.",
                "Remove those first, or edit them.",
            )
        stored.remove_schedule(tx, found.id)
        accounts.add_audit_entry(
            tx, caller, "schedule.remove", f"schedule {found.id}", _told(found), context.now()
        )
        return found

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


def _parents(conn: Connection, user: str, wish: ScheduleRequest, child: Schedule | None) -> tuple[ScheduleId, ...]:
    found = [_own(conn, user, reference) for reference in wish.parents]
    if any(one is None for one in found):
        missing = next(name for name, one in zip(wish.parents, found, strict=True) if one is None)
        raise invalid_field("parents", f"you have no schedule {safe_repr(missing)}")
    ids = tuple(dict.fromkeys(one.id for one in found if one is not None))
    if child is not None:
        _check_circle(conn, user, child, ids)
    return ids


def _check_circle(conn: Connection, user: str, child: Schedule, parents: Sequence[ScheduleId]) -> None:
    known = {one.id: one for one in stored.list_schedules(conn, user=user)}
    edges: dict[int, Sequence[int]] = {number: one.parents for number, one in known.items()}
    if circle := find_cycle({**edges, child.id: parents}):
        names = " → ".join(known[number].name if number in known else str(number) for number in circle)
        raise invalid_field("parents", f"this is a circle: {names}")


def _own(conn: Connection, user: str, reference: str) -> Schedule | None:
    if not reference.isdecimal():
        return stored.find_schedule_by_name(conn, user, reference)
    found = stored.find_schedule(conn, int(reference[:15]))
    return found if found is not None and found.user == user else None


def _visible(conn: Connection, caller: Caller, reference: str) -> Schedule:
    if not reference.isdecimal():
        return _there(stored.find_schedule_by_name(conn, caller.user.name, reference), reference)
    found = stored.find_schedule(conn, int(reference[:15]))
    may = found is not None and (found.user == caller.user.name or caller.user.may_manage(found.project))
    return _there(found if may else None, reference)


def _there(found: Schedule | None, reference: str) -> Schedule:
    if found is None:
        raise NotFound(f"There is no schedule {safe_repr(reference)}.", "`helio schedule list` lists yours.")
    return found


def _check_owner(caller: Caller, schedule: Schedule) -> None:
    """It runs with the owner's rights: nobody else says what."""
    if schedule.user != caller.user.name:
        raise Forbidden(
            f"Schedule {schedule.id} belongs to {schedule.user}.", "You may pause or remove it; or ask them."
        )


def _switch(context: Context, caller: Caller, reference: str, state: ScheduleState) -> Schedule:
    now = context.now()

    def change(tx: Transaction, actor: User) -> Schedule:
        found = _visible(tx.conn, replace(caller, user=actor), reference)
        if found.state is state:
            return found
        if found.state is ScheduleState.FINISHED:
            raise Conflict(f"Schedule {found.name} is finished.", "Give it new times: helio schedule edit.")
        if state is ScheduleState.ACTIVE:
            _check_owner(replace(caller, user=actor), found)
        goes_on = state is ScheduleState.ACTIVE and found.timing is not None
        next_at = parse_schedule_timing(found, now).next_after(now) if goes_on else None
        then = ScheduleState.FINISHED if goes_on and next_at is None else state
        stored.update_schedule(tx, found.id, state=then, next_at=next_at, version=found.version + 1)
        accounts.add_audit_entry(tx, caller, f"schedule.{_VERBS[state]}", f"schedule {found.id}", {}, now)
        return _there(stored.find_schedule(tx.conn, found.id), found.name)

    return write_as_caller(context, caller, change)


_VERBS = {ScheduleState.ACTIVE: "resume", ScheduleState.PAUSED: "pause"}


def _told(one: Schedule) -> dict[str, object]:
    return {"name": one.name, "user": one.user, "schedule": one.timing, "zone": one.zone, "state": one.state.value}
