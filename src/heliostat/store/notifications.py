"""Notifications, their deliveries, and the position in the event log, in the database."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, exists, func, insert, not_, select, update
from sqlalchemy.dialects.sqlite import insert as upsert

from heliostat.models import DependencyCondition, JobEvent, JobId, JobState, ProjectRole
from heliostat.models.environments import BUILD_JOB_KINDS
from heliostat.models.fair_use import IDLE_MANAGER_EVENT
from heliostat.models.notifications import (
    LATE_EVENT,
    NOTIFIED_EVENT_KINDS,
    Alert,
    Delivery,
    DeliveryState,
    Notification,
    NotificationChannel,
    NotificationId,
)
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.timestamps import to_datetime, to_timestamp

_notifications, _deliveries, _cursor = (
    schema.notifications,
    schema.notification_deliveries,
    schema.notification_cursor,
)
_events, _jobs, _forecasts = schema.events, schema.jobs, schema.forecasts
_dependencies, _memberships = schema.dependencies, schema.memberships


@dataclass(frozen=True, slots=True)
class EventWithJob:
    """An event with the data of its job that a notification needs."""

    event: JobEvent
    name: str
    user: str
    project: str
    notify: tuple[str, ...]
    is_notified: (
        bool  # not of an imported job, nor of a build: the jobs that wait for the build report its failure
    )
    managers: frozenset[str] = frozenset()  # of its project, if the event is also for them


_has_waiting_jobs = exists().where(
    _dependencies.c.parent_id == _events.c.job_id, _dependencies.c.rule == DependencyCondition.BUILT.value
)
_EVENTS_WITH_JOBS = select(
    *_events.c,
    _jobs.c.name,
    _jobs.c.user,
    _jobs.c.project,
    _jobs.c.notify,
    (_jobs.c.origin.is_(None) & not_(_jobs.c.kind.in_(BUILD_JOB_KINDS) & _has_waiting_jobs)).label("is_notified"),
).join_from(_events, _jobs, _jobs.c.id == _events.c.job_id)


def list_notifications(conn: Connection, user: str | None = None) -> list[Notification]:
    query = select(_notifications).order_by(_notifications.c.id)
    return [
        _notification(row)
        for row in conn.execute(query if user is None else query.where(_notifications.c.user == user))
    ]


def find_notification(conn: Connection, notification_id: NotificationId) -> Notification | None:
    row = conn.execute(select(_notifications).where(_notifications.c.id == notification_id)).first()
    return None if row is None else _notification(row)


def has_notifications(conn: Connection, user: str) -> bool:
    return (
        conn.execute(select(_notifications.c.id).where(_notifications.c.user == user).limit(1)).first() is not None
    )


def add_notification(tx: Transaction, notification: Notification) -> Notification:
    """Store it; return it with its id. Earlier events are not sent."""
    newest = tx.conn.execute(select(func.max(_events.c.id))).scalar() or 0
    values = {
        "user": notification.user,
        "project": notification.project,
        "channel": notification.channel.value,
        "address": notification.address,
        "triggers": ",".join(notification.triggers),
        "salt": notification.salt,
        "created_at": to_timestamp(notification.created_at),
        "after_event": newest,
    }
    row = tx.conn.execute(insert(_notifications).values(**values).returning(_notifications)).one()
    tx.changes.notifications_changed = True
    return _notification(row)


def remove_notification(tx: Transaction, notification_id: NotificationId) -> None:
    """With its deliveries."""
    tx.conn.execute(delete(_deliveries).where(_deliveries.c.notification_id == notification_id))
    tx.conn.execute(delete(_notifications).where(_notifications.c.id == notification_id))
    tx.changes.notifications_changed = True


def update_notification(tx: Transaction, notification_id: NotificationId, **values: Any) -> None:
    row = {name: to_timestamp(value) if isinstance(value, datetime) else value for name, value in values.items()}
    tx.conn.execute(update(_notifications).where(_notifications.c.id == notification_id).values(**row))


def last_processed_event(conn: Connection) -> int:
    """The last event for which deliveries were created; 0: none."""
    event_id: int | None = conn.execute(select(_cursor.c.event_id)).scalar()
    return event_id or 0


def set_last_processed_event(tx: Transaction, event_id: int) -> None:
    row = {"id": 1, "event_id": event_id}
    tx.conn.execute(upsert(_cursor).values(row).on_conflict_do_update(index_elements=["id"], set_=row))


def list_notifiable_events(conn: Connection, event_id: int, limit: int) -> list[EventWithJob]:
    """Events after this one that can trigger notifications, in order."""
    query = (
        _EVENTS_WITH_JOBS.where(_events.c.id > event_id, _events.c.kind.in_(NOTIFIED_EVENT_KINDS))
        .order_by(_events.c.id)
        .limit(limit)
    )
    return _with_managers(conn, [_event_with_job(row) for row in conn.execute(query)])


def get_events_with_jobs(conn: Connection, event_ids: Sequence[int]) -> list[EventWithJob]:
    events: list[EventWithJob] = []
    for batch in query_batches(event_ids):
        query = _EVENTS_WITH_JOBS.where(_events.c.id.in_(batch)).order_by(_events.c.id)
        events += [_event_with_job(row) for row in conn.execute(query)]
    return events


def find_newest_delivery(conn: Connection, notification_id: NotificationId) -> Delivery | None:
    query = select(_deliveries).where(_deliveries.c.notification_id == notification_id)
    row = conn.execute(
        query.order_by(_deliveries.c.created_at.desc(), _deliveries.c.due_at.desc()).limit(1)
    ).first()
    return None if row is None else _delivery(row)


def has_delivery(conn: Connection, delivery_id: str) -> bool:
    return conn.execute(select(_deliveries.c.id).where(_deliveries.c.id == delivery_id)).first() is not None


def add_delivery(tx: Transaction, delivery: Delivery) -> None:
    values = {
        "id": delivery.id,
        "notification_id": delivery.notification_id,
        "event_ids": json.dumps(delivery.event_ids),
        "more": delivery.more,
        "state": delivery.state.value,
        "created_at": to_timestamp(delivery.created_at),
        "due_at": to_timestamp(delivery.due_at),
        "tries": delivery.tries,
        "report": delivery.report,
        "alerts": _alerts_json(delivery.alerts),
    }
    tx.conn.execute(insert(_deliveries).values(**values))


def set_delivery_events(tx: Transaction, delivery_id: str, event_ids: Sequence[int], more: int) -> None:
    change = update(_deliveries).where(_deliveries.c.id == delivery_id)
    tx.conn.execute(change.values(event_ids=json.dumps(event_ids), more=more))


def set_delivery_alerts(tx: Transaction, delivery_id: str, alerts: Sequence[Alert], more: int) -> None:
    change = update(_deliveries).where(_deliveries.c.id == delivery_id)
    tx.conn.execute(change.values(alerts=_alerts_json(alerts), more=more))


def list_next_deliveries(conn: Connection) -> list[Delivery]:
    """The oldest waiting delivery of each notification, ordered by due time."""
    waiting = _deliveries.c.state == DeliveryState.WAITING.value
    order = (_deliveries.c.created_at, _deliveries.c.due_at, _deliveries.c.id)
    ranked = func.row_number().over(partition_by=_deliveries.c.notification_id, order_by=order).label("rank")
    inner = select(_deliveries, ranked).where(waiting).subquery()
    rows = conn.execute(select(inner).where(inner.c.rank == 1).order_by(inner.c.due_at))
    return [_delivery(row) for row in rows]


def begin_send(tx: Transaction, delivery: Delivery, again_at: datetime) -> Delivery | None:
    """From here on no events are added. After a crash it is sent again at `again_at`. None: it was removed."""
    is_waiting = (_deliveries.c.id == delivery.id, _deliveries.c.state == DeliveryState.WAITING.value)
    change = update(_deliveries).where(*is_waiting, _deliveries.c.tries == delivery.tries)
    row = tx.conn.execute(
        change.values(tries=delivery.tries + 1, due_at=to_timestamp(again_at)).returning(_deliveries)
    ).first()
    return None if row is None else _delivery(row)


def finish_send(tx: Transaction, delivery: Delivery, state: DeliveryState, problem: str | None) -> None:
    change = update(_deliveries).where(_deliveries.c.id == delivery.id)
    tx.conn.execute(change.values(state=state.value, problem=problem))


def remove_old_deliveries(tx: Transaction, before: datetime) -> None:
    is_finished = _deliveries.c.state != DeliveryState.WAITING.value
    tx.conn.execute(delete(_deliveries).where(is_finished, _deliveries.c.created_at < to_timestamp(before)))


def count_deliveries(
    conn: Connection, ids: Collection[NotificationId]
) -> dict[tuple[NotificationId, DeliveryState], int]:
    """By notification and state."""
    query = (
        select(_deliveries.c.notification_id, _deliveries.c.state, func.count())
        .where(_deliveries.c.notification_id.in_(list(ids)))
        .group_by(_deliveries.c.notification_id, _deliveries.c.state)
    )
    return {
        (notification_id, DeliveryState(state)): count for notification_id, state, count in conn.execute(query)
    }


def list_waiting_jobs_with_forecast(
    conn: Connection, users: Collection[str], projects: Collection[str]
) -> list[tuple[JobId, datetime]]:
    """Waiting jobs with the latest start of their first forecast: of these users and projects, and jobs that
    request this notification. Without jobs that were already reported as late."""
    reported = select(_events.c.id).where(_events.c.job_id == _jobs.c.id, _events.c.kind == LATE_EVENT)
    is_subscribed = _jobs.c.user.in_(list(users)) | _jobs.c.project.in_(list(projects))
    query = (
        select(_jobs.c.id, _forecasts.c.latest_at)
        .join(_forecasts, _forecasts.c.job_id == _jobs.c.id)
        .where(_jobs.c.ended_at.is_(None), _jobs.c.state == JobState.PENDING.value)
        .where(
            is_subscribed | _jobs.c.notify.contains(f'"{LATE_EVENT}"'),
            _forecasts.c.started_at.is_(None),
            ~reported.exists(),
        )
    )
    return [(job_id, to_datetime(latest)) for job_id, latest in conn.execute(query)]


def _with_managers(conn: Connection, events: list[EventWithJob]) -> list[EventWithJob]:
    projects = {row.project for row in events if row.event.kind == IDLE_MANAGER_EVENT}
    if not projects:
        return events
    query = select(_memberships.c.project, _memberships.c.user).where(
        _memberships.c.project.in_(projects), _memberships.c.role == ProjectRole.MANAGER.value
    )
    pairs = [(project, user) for project, user in conn.execute(query)]
    managers = {project: frozenset(user for one, user in pairs if one == project) for project in projects}
    return [
        replace(row, managers=managers[row.project]) if row.event.kind == IDLE_MANAGER_EVENT else row
        for row in events
    ]


def _alerts_json(alerts: Sequence[Alert]) -> str:
    return json.dumps([{**asdict(alert), "started_at": to_timestamp(alert.started_at)} for alert in alerts])


def _alerts(text: str) -> tuple[Alert, ...]:
    return tuple(Alert(**{**one, "started_at": to_datetime(one["started_at"])}) for one in json.loads(text))


def _event_with_job(row: Any) -> EventWithJob:
    event = JobEvent(
        row.id, row.job_id, row.attempt, to_datetime(row.at), row.kind, JobState(row.state), row.detail
    )
    return EventWithJob(
        event, row.name, row.user, row.project, tuple(json.loads(row.notify)), bool(row.is_notified)
    )


def _notification(row: Row[Any]) -> Notification:
    return Notification(
        id=row.id,
        user=row.user,
        project=row.project,
        channel=NotificationChannel(row.channel),
        address=row.address,
        triggers=tuple(row.triggers.split(",")) if row.triggers else (),
        salt=row.salt,
        created_at=to_datetime(row.created_at),
        after_event=row.after_event,
        sent_at=to_datetime(row.sent_at),
        problem=row.problem,
        tested_at=to_datetime(row.tested_at),
    )


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        id=row.id,
        notification_id=row.notification_id,
        event_ids=tuple(json.loads(row.event_ids)),
        more=row.more,
        state=DeliveryState(row.state),
        created_at=to_datetime(row.created_at),
        due_at=to_datetime(row.due_at),
        tries=row.tries,
        problem=row.problem,
        report=row.report,
        alerts=_alerts(row.alerts),
    )
