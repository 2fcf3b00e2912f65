"""Schedules in the database."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, or_, select, update
from sqlalchemy.sql import ColumnElement

from heliostat.models import JobId, JobRequest
from heliostat.models.schedules import (
    CatchUpMode,
    OverlapPolicy,
    Schedule,
    ScheduleId,
    ScheduleOrigin,
    ScheduleState,
)
from heliostat.store.database import Transaction
from heliostat.store.dataclass_json import dataclass_to_text, text_to_dataclass
from heliostat.store.schema import firings, schedule_parents, schedules
from heliostat.store.timestamps import to_datetime, to_timestamp

_c, _p = schedules.c, schedule_parents.c
_TIMES = ("created_at", "next_at", "handled_at", "last_due_at", "succeeded_at", "failed_at")
_COLUMNS = tuple(field.name for field in fields(Schedule) if field.name != "parents")


def find_schedule(conn: Connection, schedule_id: ScheduleId) -> Schedule | None:
    return _find(conn, _c.id == schedule_id)


def find_schedule_by_name(conn: Connection, user: str, name: str) -> Schedule | None:
    return _find(conn, (_c.user == user) & (_c.name == name))


def list_schedules(
    conn: Connection, *, user: str | None = None, projects: Collection[str] | None = None
) -> list[Schedule]:
    """By name: schedules of a user and of these projects; None and None: all."""
    query = select(schedules).order_by(_c.name, _c.id)
    conditions: list[ColumnElement[bool]] = [] if user is None else [_c.user == user]
    conditions += [] if projects is None else [_c.project.in_(projects)]
    rows = conn.execute(query.where(or_(*conditions)) if conditions else query).all()
    parents = _parents(conn)
    return [_schedule(row, parents.get(row.id, ())) for row in rows]


def count_schedules_of_user(conn: Connection, user: str) -> int:
    return conn.execute(select(func.count()).where(_c.user == user)).scalar_one()


def add_schedule(tx: Transaction, schedule: Schedule) -> ScheduleId:
    values = {name: value for name, value in _values(schedule).items() if name != "id"}
    key = tx.conn.execute(insert(schedules).values(values)).inserted_primary_key
    tx.changes.schedules_changed = True
    schedule_id = int(key[0]) if key else 0
    set_schedule_parents(tx, schedule_id, schedule.parents)
    return schedule_id


def update_schedule(tx: Transaction, schedule_id: ScheduleId, **values: Any) -> None:
    tx.conn.execute(update(schedules).where(_c.id == schedule_id).values(_columns(values)))
    tx.changes.schedules_changed = True


def set_schedule_parents(tx: Transaction, schedule_id: ScheduleId, parents: Sequence[ScheduleId]) -> None:
    """Remaining parents keep their state."""
    met = set(tx.conn.execute(select(_p.parent_id).where(_p.schedule_id == schedule_id, _p.is_met)).scalars())
    tx.conn.execute(delete(schedule_parents).where(_p.schedule_id == schedule_id))
    rows = [{"schedule_id": schedule_id, "parent_id": parent, "is_met": parent in met} for parent in parents]
    if rows:
        tx.conn.execute(insert(schedule_parents), rows)


def remove_schedule(tx: Transaction, schedule_id: ScheduleId) -> None:
    """With its firings; its jobs stay."""
    tx.conn.execute(delete(schedule_parents).where(_p.schedule_id == schedule_id))
    tx.conn.execute(delete(firings).where(firings.c.schedule_id == schedule_id))
    tx.conn.execute(delete(schedules).where(_c.id == schedule_id))
    tx.changes.schedules_changed = True


def list_child_schedules(conn: Connection, schedule_id: ScheduleId) -> list[ScheduleId]:
    query = select(_p.schedule_id).where(_p.parent_id == schedule_id).order_by(_p.schedule_id)
    return list(conn.execute(query).scalars())


def list_due_schedules(
    conn: Connection, now: datetime, limit: int, excluded: Collection[ScheduleId]
) -> list[Schedule]:
    """Earliest first."""
    query = select(schedules).where(_c.next_at <= to_timestamp(now), _c.id.not_in(excluded))
    rows = conn.execute(query.order_by(_c.next_at, _c.id).limit(limit)).all()
    parents = _parents(conn, [row.id for row in rows]) if rows else {}
    return [_schedule(row, parents.get(row.id, ())) for row in rows]


def find_next_due_time(conn: Connection) -> datetime | None:
    return to_datetime(conn.execute(select(func.min(_c.next_at)).where(_c.next_at.is_not(None))).scalar())


def list_schedules_handled_after(conn: Connection, moment: datetime) -> list[Schedule]:
    """Schedules processed at a later time than this, which happens if the clock was set back."""
    query = select(schedules).where(
        _c.handled_at > to_timestamp(moment), _c.state != ScheduleState.PAUSED.value, _c.timing.is_not(None)
    )
    return [_schedule(row, ()) for row in conn.execute(query)]


def mark_parent_succeeded(tx: Transaction, parent_id: ScheduleId) -> list[ScheduleId]:
    """Record the success; return the children whose parents have now all succeeded."""
    tx.conn.execute(update(schedule_parents).where(_p.parent_id == parent_id).values(is_met=True))
    return [
        child for child in list_child_schedules(tx.conn, parent_id) if have_all_parents_succeeded(tx.conn, child)
    ]


def have_all_parents_succeeded(conn: Connection, schedule_id: ScheduleId) -> bool:
    rows = conn.execute(select(_p.is_met).where(_p.schedule_id == schedule_id)).scalars().all()
    return bool(rows) and all(rows)


def reset_parents(tx: Transaction, schedule_id: ScheduleId) -> None:
    """After it fired: each parent must succeed again before the next firing."""
    tx.conn.execute(update(schedule_parents).where(_p.schedule_id == schedule_id).values(is_met=False))


def find_schedule_origin(conn: Connection, job_id: JobId) -> ScheduleOrigin | None:
    """The schedule that submitted this job, if it is a newest job of a firing."""
    f = firings.c
    query = (
        select(f.schedule_id, _c.name, f.due_at, f.last_job_id)
        .join(schedules, _c.id == f.schedule_id)
        .where(f.job_id <= job_id)
        .order_by(f.job_id.desc())
        .limit(1)
    )
    row = conn.execute(query).first()
    return (
        None
        if row is None or row.last_job_id < job_id
        else ScheduleOrigin(row.schedule_id, row.name, to_datetime(row.due_at))
    )


def _find(conn: Connection, condition: ColumnElement[bool]) -> Schedule | None:
    row = conn.execute(select(schedules).where(condition)).first()
    return None if row is None else _schedule(row, _parents(conn, [row.id]).get(row.id, ()))


def _parents(
    conn: Connection, ids: Sequence[ScheduleId] | None = None
) -> dict[ScheduleId, tuple[ScheduleId, ...]]:
    query = select(_p.schedule_id, _p.parent_id).order_by(_p.parent_id)
    parents: dict[ScheduleId, tuple[ScheduleId, ...]] = {}
    for child, parent in conn.execute(query if ids is None else query.where(_p.schedule_id.in_(ids))):
        parents[child] = (*parents.get(child, ()), parent)
    return parents


def _schedule(row: Row[Any], parents: tuple[ScheduleId, ...]) -> Schedule:
    values = dict(row._mapping)
    values |= {name: to_datetime(values[name]) for name in _TIMES}
    values["state"] = ScheduleState(values["state"])
    values["overlap"], values["catch_up"] = OverlapPolicy(values["overlap"]), CatchUpMode(values["catch_up"])
    values["request"] = text_to_dataclass(JobRequest, values["request"])
    values["document"] = json.loads(values["document"])
    return Schedule(**values, parents=parents)


def _values(schedule: Schedule) -> dict[str, Any]:
    return _columns({name: getattr(schedule, name) for name in _COLUMNS})


def _columns(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _column(name, value) for name, value in values.items()}


def _column(name: str, value: Any) -> Any:
    if name == "request":
        return dataclass_to_text(value)
    if name == "document":
        return json.dumps(dict(value))
    return to_timestamp(value) if isinstance(value, datetime) else str(value) if name in _ENUM_COLUMNS else value


_ENUM_COLUMNS = {"state", "overlap", "catch_up"}
