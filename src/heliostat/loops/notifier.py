"""Sends notifications about job events in background threads, and detects late jobs.

The event log is the outbox: an event is written in the same transaction as the change it reports, so no event is
lost. One thread reads the log and stores deliveries together with its position in the log. A few other threads
send them, with the same id until they arrive or a day has passed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from queue import SimpleQueue

from heliostat.config import Settings
from heliostat.controller.background_loop import BackgroundLoop, log_failure
from heliostat.loops.monthly_reports import MonthlyReports
from heliostat.models import TERMINAL_STATES, Job, JobId, JobState, User
from heliostat.models.notifications import (
    IDLE_EVENTS,
    LATE_EVENT,
    Delivery,
    DeliveryState,
    Notification,
    NotificationChannel,
    NotificationId,
    triggers_of_event,
)
from heliostat.notifications.addresses import DeliveryFailed
from heliostat.notifications.delivery import NotificationSender
from heliostat.notifications.messages import MAX_LISTED_EVENTS, NotificationMessage, NotifiedEvent, compose_message
from heliostat.scheduling.forecast import Forecast
from heliostat.server_log import get_logger
from heliostat.services.cluster.job_usage import describe_efficiency
from heliostat.services.context import Context
from heliostat.store import accounts, job_writes
from heliostat.store import jobs as stored_jobs
from heliostat.store import notifications as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from heliostat.store.notifications import EventWithJob

log = get_logger()

_MAX_SLEEP_SECONDS = 60.0
_RETRY_SECONDS = 2.0
_READ_BATCH = 2000  # events
_MAX_EVENTS_PER_DELIVERY = 500
_MAX_UNSAVED_EVENTS = 10_000  # without notifications; the next server reads them again
_CLEANUP_SECONDS = 3600.0
_SENDERS = 4
_RETENTION = timedelta(days=30)
_FAILURE = "notifications_not_sent"

SendMessage = Callable[[Notification, NotificationMessage, datetime], None]
"""Returns once the message has arrived; raises DeliveryFailed."""


@dataclass(frozen=True, slots=True)
class NotificationTiming:
    """Number of attempts to send a delivery, and the pauses between them."""

    max_send_attempts: int = 30  # with their pauses, about a day
    first_pause_seconds: float = 10.0
    max_pause_seconds: float = 3600.0
    batch_seconds: float = 0.5  # events within this time are sent together
    webhook_pause_seconds: float = 1.0

    def pause_after(self, attempts: int) -> float:
        """Pause after this number of attempts."""
        return min(self.first_pause_seconds * 2.0 ** min(attempts, 20), self.max_pause_seconds)


@dataclass(frozen=True, slots=True)
class NotifierComponents:
    """Dependencies of the notifier."""

    store: Store
    settings: Settings
    send: SendMessage
    now: Callable[[], datetime]
    record_late_jobs: Callable[[Sequence[Notification]], None] = lambda _: None
    monthly_reports: MonthlyReports | None = None
    describe_efficiency: Callable[[JobId], str] = lambda _: ""
    timing: NotificationTiming = NotificationTiming()


def make_notifier(context: Context) -> "Notifier":
    """For a running server."""
    settings = context.settings
    late = LateJobDetector(
        context.store, context.forecaster.forecast_of, settings.notifications.late_seconds, context.now
    )
    return Notifier(
        NotifierComponents(
            context.store,
            settings,
            NotificationSender(settings.home, settings.notifications).send,
            context.now,
            late.record_late_jobs,
            MonthlyReports(context),
            partial(describe_efficiency, context),
        )
    )


class Notifier:
    def __init__(self, components: NotifierComponents) -> None:
        self._components, self._store, self._timing = components, components.store, components.timing
        self._lock = threading.Lock()  # guards the next three
        self._changes = 0  # of notifications
        self._busy: set[NotificationId] = set()  # with a delivery that is being sent
        self._notifications: list[Notification] | None = None  # None: to be read again
        self._read_until = self._saved_until = 0  # event ids; the second is on disk
        self._late_checked_at = -_MAX_SLEEP_SECONDS
        self._cleaned_at = -_CLEANUP_SECONDS
        self._work: SimpleQueue[Delivery | None] = SimpleQueue()
        self._loop = BackgroundLoop("notifier", self._run_once, _RETRY_SECONDS, failure=_FAILURE)
        self._senders = [
            threading.Thread(target=self._send_all, name=f"notification-sender-{n}", daemon=True)
            for n in range(_SENDERS)
        ]

    def start(self) -> None:
        self._store.on_commit(self._on_commit)
        for sender in self._senders:
            sender.start()
        self._loop.start()

    def close(self) -> None:
        """Does not wait for deliveries in progress: they are sent again with the same id."""
        self._loop.close()
        for _ in self._senders:
            self._work.put(None)

    def _on_commit(self, changes: StoreChanges) -> None:
        if not (changes.notifications_changed or (changes.events and self._notifications != [])):
            return
        if changes.notifications_changed:
            with self._lock:
                self._notifications, self._changes = None, self._changes + 1
        self._loop.wake()

    def _run_once(self) -> float:
        """Followed by a short pause in which further events can be collected."""
        next_at = self._round()
        self._loop.pause(self._timing.batch_seconds)
        seconds = _MAX_SLEEP_SECONDS if next_at is None else (next_at - self._components.now()).total_seconds()
        return max(0.0, min(seconds, _MAX_SLEEP_SECONDS))

    def _round(self) -> datetime | None:
        """When the next delivery is due; None: there is none."""
        notifications = self._current_notifications()
        if not notifications:
            return None
        self._check_late_jobs(notifications)
        self._clean_up()
        while self._create_deliveries(notifications) and not self._loop.is_closing:
            pass
        return self._start_due_deliveries()

    def _current_notifications(self) -> list[Notification]:
        with self._lock:
            known, changes = self._notifications, self._changes
        if known is None:
            with self._store.read() as conn:
                known = stored.list_notifications(conn)
                self._read_until = max(self._read_until, stored.last_processed_event(conn))
            with self._lock:
                self._notifications = known if changes == self._changes else None
        return known

    def _check_late_jobs(self, notifications: list[Notification]) -> None:
        if time.monotonic() - self._late_checked_at >= _MAX_SLEEP_SECONDS:
            self._late_checked_at = time.monotonic()
            self._components.record_late_jobs(notifications)
            if self._components.monthly_reports is not None:
                self._components.monthly_reports.add_deliveries(notifications)

    def _clean_up(self) -> None:
        if time.monotonic() - self._cleaned_at >= _CLEANUP_SECONDS:
            self._cleaned_at = time.monotonic()
            before = self._components.now() - _RETENTION
            self._store.write(lambda tx: stored.remove_old_deliveries(tx, before))

    def _create_deliveries(self, notifications: list[Notification]) -> bool:
        """Create deliveries for the next events; return whether there may be more events."""
        start = max(self._read_until, min(notification.after_event for notification in notifications))
        with self._store.read() as conn:
            events = stored.list_notifiable_events(conn, start, _READ_BATCH)
        if not events:
            return False
        matches = {
            notification.id: ids
            for notification in notifications
            if (ids := matching_event_ids(notification, events))
        }
        now, last = self._components.now(), events[-1].event.id

        def change(tx: Transaction) -> None:
            existing = (
                {notification.id: notification for notification in stored.list_notifications(tx.conn)}
                if matches
                else {}
            )
            for notification_id, ids in matches.items():
                if notification_id in existing:
                    self._add_events(tx, existing[notification_id], ids, now)
            stored.set_last_processed_event(tx, last)

        if matches or last - self._saved_until > _MAX_UNSAVED_EVENTS:
            self._store.write(change)
            self._saved_until = last
        self._read_until = last
        return len(events) == _READ_BATCH

    def _add_events(self, tx: Transaction, notification: Notification, ids: list[int], now: datetime) -> None:
        """Added to a delivery that was not sent yet. Webhooks get all events, e-mails and chats only a number of
        the events that exceed the limit."""
        newest = stored.find_newest_delivery(tx.conn, notification.id)
        due_at = now + timedelta(seconds=self._timing.batch_seconds)
        if newest is not None:
            due_at = max(due_at, newest.due_at + timedelta(seconds=self._pause(notification)))
            if newest.state is DeliveryState.WAITING and not newest.tries and newest.is_about_jobs:
                ids = self._fill_delivery(tx, notification, newest, ids)
        while ids:
            part, ids = ids[:_MAX_EVENTS_PER_DELIVERY], ids[_MAX_EVENTS_PER_DELIVERY:]
            more, ids = (0, ids) if notification.channel is NotificationChannel.WEBHOOK else (len(ids), [])
            waiting = DeliveryState.WAITING
            stored.add_delivery(
                tx, Delivery(str(uuid.uuid4()), notification.id, tuple(part), more, waiting, now, due_at)
            )
            due_at += timedelta(seconds=self._pause(notification))

    def _fill_delivery(
        self, tx: Transaction, notification: Notification, delivery: Delivery, ids: list[int]
    ) -> list[int]:
        """Return the events that do not fit."""
        free = _MAX_EVENTS_PER_DELIVERY - len(delivery.event_ids)
        added, left = ids[:free], ids[free:]
        more = 0 if notification.channel is NotificationChannel.WEBHOOK else len(left)
        stored.set_delivery_events(tx, delivery.id, [*delivery.event_ids, *added], delivery.more + more)
        return left if notification.channel is NotificationChannel.WEBHOOK else []

    def _pause(self, notification: Notification) -> float:
        is_webhook = notification.channel is NotificationChannel.WEBHOOK
        return (
            self._timing.webhook_pause_seconds
            if is_webhook
            else self._components.settings.notifications.pause_seconds
        )

    def _start_due_deliveries(self) -> datetime | None:
        """Pass due deliveries to the senders: one at a time for each notification, in order. Return when the next
        is due."""
        now = self._components.now()
        with self._store.read() as conn:
            first = stored.list_next_deliveries(conn)
        with self._lock:
            ready = [delivery for delivery in first if delivery.notification_id not in self._busy]
            due = [delivery for delivery in ready if delivery.due_at <= now]
            self._busy |= {delivery.notification_id for delivery in due}
        for delivery in due:
            self._work.put(delivery)
        return min((delivery.due_at for delivery in ready if delivery.due_at > now), default=None)

    def _send_all(self) -> None:
        while (delivery := self._work.get()) is not None:
            try:
                self._send(delivery)
            except Exception as error:  # noqa: BLE001 - retried later
                log_failure(_FAILURE, error)
                time.sleep(_RETRY_SECONDS)
            with self._lock:
                self._busy.discard(delivery.notification_id)
            self._loop.wake()

    def _send(self, planned: Delivery) -> None:
        now = self._components.now()
        again_at = now + timedelta(seconds=self._timing.pause_after(planned.tries))
        delivery = self._store.write(lambda tx: stored.begin_send(tx, planned, again_at))
        if delivery is None:
            return
        with self._store.read() as conn:
            notification = stored.find_notification(conn, delivery.notification_id)
            owner = None if notification is None else accounts.find_user(conn, notification.user)
            rows = stored.get_events_with_jobs(conn, delivery.event_ids)
        if notification is None:
            return
        problem, is_final = None, False
        try:
            if owner is None or not _has_permission(owner, notification, delivery):
                raise _no_permission(notification)
            self._components.send(notification, self._compose(notification, delivery, rows, owner), now)
        except DeliveryFailed as error:
            problem, is_final = error.problem, error.is_final or delivery.tries >= self._timing.max_send_attempts
            log.warning(
                "notification_not_delivered", notification=notification.id, tries=delivery.tries, problem=problem
            )
        self._store.write(lambda tx: _record_outcome(tx, delivery, problem, is_final, now))

    def _compose(
        self, notification: Notification, delivery: Delivery, rows: Sequence[EventWithJob], owner: User
    ) -> NotificationMessage:
        if delivery.report is not None and self._components.monthly_reports is not None:
            return self._components.monthly_reports.compose(notification, delivery, owner)
        readable = [row for row in rows if _may_read(owner, row)]
        if not readable and not delivery.alerts:
            raise _no_permission(notification)
        events = [self._notified_event(row, place < MAX_LISTED_EVENTS) for place, row in enumerate(readable)]
        return compose_message(notification, delivery, events, self._components.settings.server.public_url)

    def _notified_event(self, row: EventWithJob, is_listed: bool) -> NotifiedEvent:
        has_ended = row.event.state in TERMINAL_STATES
        efficiency = self._components.describe_efficiency(row.event.job_id) if has_ended and is_listed else ""
        return NotifiedEvent(row.event, row.name, row.user, row.project, efficiency)


def _no_permission(notification: Notification) -> DeliveryFailed:
    return DeliveryFailed(f"{notification.user} no longer has permission for this notification", is_final=True)


def matching_event_ids(notification: Notification, events: Sequence[EventWithJob]) -> list[int]:
    """The ids of the events that match the notification."""
    return [
        row.event.id for row in events if row.event.id > notification.after_event and _matches(notification, row)
    ]


def _matches(notification: Notification, row: EventWithJob) -> bool:
    if not row.is_notified:
        return False
    if row.event.kind in IDLE_EVENTS:
        return notification.project in (None, row.project) and notification.user in {row.user, *row.managers}
    triggers = triggers_of_event(row.event)
    if notification.project is not None:
        return row.project == notification.project and bool(triggers & set(notification.triggers))
    return row.user == notification.user and bool(triggers & {*notification.triggers, *row.notify})


def _has_permission(owner: User, notification: Notification, delivery: Delivery) -> bool:
    """Checked with the current permissions of the owner."""
    if not owner.active or (delivery.alerts and not owner.is_admin):
        return False
    return notification.project is None or owner.may_manage(notification.project)


def _may_read(owner: User, row: EventWithJob) -> bool:
    """A manager may have lost this role since the event."""
    return row.user == owner.name or owner.may_manage(row.project)


def _record_outcome(
    tx: Transaction, delivery: Delivery, problem: str | None, is_final: bool, now: datetime
) -> None:
    state = DeliveryState.SENT if problem is None else DeliveryState.WAITING
    stored.finish_send(tx, delivery, DeliveryState.GIVEN_UP if is_final else state, problem)
    sent = {"sent_at": now} if problem is None else {}
    stored.update_notification(tx, delivery.notification_id, problem=problem, **sent)


@dataclass(frozen=True, slots=True)
class LateJobDetector:
    """Detects jobs that will start much later than forecast, and records one event for each."""

    store: Store
    forecast_of: Callable[[Job], Forecast | None]
    late_seconds: float
    now: Callable[[], datetime]

    def record_late_jobs(self, notifications: Sequence[Notification]) -> None:
        """Only of jobs for which a notification requests it."""
        subscribed = [notification for notification in notifications if LATE_EVENT in notification.triggers]
        users = {notification.user for notification in subscribed if notification.project is None}
        projects = {notification.project for notification in subscribed if notification.project is not None}
        with self.store.read() as conn:
            first_forecasts = dict(stored.list_waiting_jobs_with_forecast(conn, users, projects))
            jobs = stored_jobs.get_jobs(conn, list(first_forecasts)) if first_forecasts else {}
        late: list[tuple[Job, str]] = []
        for job in jobs.values():
            if not any(_includes_late_job(notification, job) for notification in notifications):
                continue
            forecast, latest_at = self.forecast_of(job), first_forecasts[job.id]
            if forecast and forecast.likely_at > latest_at + timedelta(seconds=self.late_seconds):
                detail = f"first forecast: by {_format_time(latest_at)}; now: {_format_time(forecast.likely_at)}"
                late.append((job, detail))
        if late:
            self.store.write(lambda tx: self._write(tx, late))

    def _write(self, tx: Transaction, late: Sequence[tuple[Job, str]]) -> None:
        current = stored_jobs.get_jobs(tx.conn, [job.id for job, _ in late])
        for job, detail in late:
            if current[job.id].state is JobState.PENDING:
                job_writes.add_job_event(tx, current[job.id], LATE_EVENT, detail, self.now())


def _includes_late_job(notification: Notification, job: Job) -> bool:
    if notification.project is not None:
        return notification.project == job.project and LATE_EVENT in notification.triggers
    return notification.user == job.user and LATE_EVENT in (*notification.triggers, *job.notify)


def _format_time(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
