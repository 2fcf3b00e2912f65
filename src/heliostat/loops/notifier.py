"""Tells people what they asked to be told, beside the controller and never in its way.

The log of events is the outbox: an event is written in the transaction of what it tells, so nothing that happened
can be forgotten. One thread reads on from where it was, and writes down what is to be sent to whom together with
how far it has read. A few others send it, under the same id until it has arrived or a day has passed.
"""

import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from queue import SimpleQueue

from heliostat.config import Settings
from heliostat.controller.background_loop import BackgroundLoop, log_failure
from heliostat.models import Job, JobState, User
from heliostat.models.notifications import (
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
from heliostat.notifications.messages import NotificationMessage, NotifiedEvent, compose_message
from heliostat.scheduling.forecast import Forecast
from heliostat.server_log import get_logger
from heliostat.services.context import Context
from heliostat.store import accounts, transitions
from heliostat.store import jobs as stored_jobs
from heliostat.store import notifications as stored
from heliostat.store.database import Store, StoreChanges, Transaction
from heliostat.store.notifications import EventWithJob

log = get_logger()

_LONGEST_SLEEP_SECONDS = 60.0
_RETRY_SECONDS = 2.0
_AT_ONCE = 2000  # events
_MOST_EVENTS = 500  # in one delivery
_MOST_READ_AGAIN = 10_000  # events that nobody is told of, by the next server
_TIDY_SECONDS = 3600.0
_SENDERS = 4
_KEPT = timedelta(days=30)
_FAILURE = "notifications_not_sent"

SendMessage = Callable[[Notification, NotificationMessage, datetime], None]
"""Returns once it has arrived; raises Undelivered."""


@dataclass(frozen=True, slots=True)
class NotificationTiming:
    """How often a delivery is tried, and how long the pauses are."""

    max_send_attempts: int = 30  # with the pauses between them, about a day
    first_pause_seconds: float = 10.0
    max_pause_seconds: float = 3600.0
    batch_seconds: float = 0.5  # in which more may happen that is told together
    webhook_pause_seconds: float = 1.0

    def pause_after(self, tries: int) -> float:
        """Until the next try, when there were so many."""
        return min(self.first_pause_seconds * 2.0 ** min(tries, 20), self.max_pause_seconds)


@dataclass(frozen=True, slots=True)
class NotifierComponents:
    """What a notifier works with."""

    store: Store
    settings: Settings
    send: SendMessage
    now: Callable[[], datetime]
    record_late_jobs: Callable[[Sequence[Notification]], None] = lambda notifications: (
        None
    )  # looks now and then who has become late
    timing: NotificationTiming = NotificationTiming()


def make_notifier(context: Context) -> "Notifier":
    """The one of a running server."""
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
        )
    )


class Notifier:
    def __init__(self, desk: NotifierComponents) -> None:
        self._desk, self._store, self._timing = desk, desk.store, desk.timing
        self._lock = threading.Lock()  # guards what follows
        self._changes = 0  # of notifications
        self._busy: set[NotificationId] = set()  # of which a delivery is on its way
        self._notifications: list[Notification] | None = None  # None: they have changed
        self._read_until = self._noted_until = 0  # the second is on disk
        self._looked_at = -_LONGEST_SLEEP_SECONDS
        self._tidied_at = -_TIDY_SECONDS
        self._work: SimpleQueue[Delivery | None] = SimpleQueue()
        self._loop = BackgroundLoop("notifier", self._look, _RETRY_SECONDS, failure=_FAILURE)
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
        """What is on its way is not waited for: it is sent again under the same id."""
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

    def _look(self) -> float:
        """Then a moment for more to happen; then until something does, or the next is due."""
        next_at = self._round()
        self._loop.pause(self._timing.batch_seconds)
        left = _LONGEST_SLEEP_SECONDS if next_at is None else (next_at - self._desk.now()).total_seconds()
        return max(0.0, min(left, _LONGEST_SLEEP_SECONDS))

    def _round(self) -> datetime | None:
        """When the next is due; None: nothing is."""
        notifications = self._known()
        if not notifications:
            return None
        self._look_for_late(notifications)
        self._tidy()
        while self._gather(notifications) and not self._loop.is_closing:
            pass
        return self._hand_out()

    def _known(self) -> list[Notification]:
        with self._lock:
            known, changes = self._notifications, self._changes
        if known is None:
            with self._store.read() as conn:
                known = stored.list_notifications(conn)
                self._read_until = max(self._read_until, stored.last_processed_event(conn))
            with self._lock:
                self._notifications = known if changes == self._changes else None
        return known

    def _look_for_late(self, notifications: list[Notification]) -> None:
        if time.monotonic() - self._looked_at >= _LONGEST_SLEEP_SECONDS:
            self._looked_at = time.monotonic()
            self._desk.record_late_jobs(notifications)

    def _tidy(self) -> None:
        if time.monotonic() - self._tidied_at >= _TIDY_SECONDS:
            self._tidied_at = time.monotonic()
            before = self._desk.now() - _KEPT
            self._store.write(lambda tx: stored.remove_old_deliveries(tx, before))

    def _gather(self, notifications: list[Notification]) -> bool:
        """Events become deliveries; whether there may be more of them."""
        start = max(self._read_until, min(notification.after_event for notification in notifications))
        with self._store.read() as conn:
            found = stored.list_notifiable_events(conn, start, _AT_ONCE)
        if not found:
            return False
        wanted = {
            notification.id: ids
            for notification in notifications
            if (ids := matching_event_ids(notification, found))
        }
        now, last = self._desk.now(), found[-1].event.id

        def change(tx: Transaction) -> None:
            there = (
                {notification.id: notification for notification in stored.list_notifications(tx.conn)}
                if wanted
                else {}
            )
            for notification_id, ids in wanted.items():
                if notification_id in there:
                    self._note(tx, there[notification_id], ids, now)
            stored.set_last_processed_event(tx, last)

        if wanted or last - self._noted_until > _MOST_READ_AGAIN:
            self._store.write(change)
            self._noted_until = last
        self._read_until = last
        return len(found) == _AT_ONCE

    def _note(self, tx: Transaction, notification: Notification, ids: list[int], now: datetime) -> None:
        """Added to what has not been tried yet; what programs read is never left out, people get a number."""
        newest = stored.find_newest_delivery(tx.conn, notification.id)
        due_at = now + timedelta(seconds=self._timing.batch_seconds)
        if newest is not None:
            due_at = max(due_at, newest.due_at + timedelta(seconds=self._pause(notification)))
            if newest.state is DeliveryState.WAITING and not newest.tries:
                ids = self._fill(tx, notification, newest, ids)
        while ids:
            part, ids = ids[:_MOST_EVENTS], ids[_MOST_EVENTS:]
            more, ids = (0, ids) if notification.channel is NotificationChannel.WEBHOOK else (len(ids), [])
            waiting = DeliveryState.WAITING
            stored.add_delivery(
                tx, Delivery(str(uuid.uuid4()), notification.id, tuple(part), more, waiting, now, due_at)
            )
            due_at += timedelta(seconds=self._pause(notification))

    def _fill(self, tx: Transaction, notification: Notification, open_one: Delivery, ids: list[int]) -> list[int]:
        """What does not fit."""
        room = _MOST_EVENTS - len(open_one.event_ids)
        fits, left = ids[:room], ids[room:]
        more = 0 if notification.channel is NotificationChannel.WEBHOOK else len(left)
        stored.set_delivery_events(tx, open_one.id, [*open_one.event_ids, *fits], open_one.more + more)
        return left if notification.channel is NotificationChannel.WEBHOOK else []

    def _pause(self, notification: Notification) -> float:
        is_webhook = notification.channel is NotificationChannel.WEBHOOK
        return (
            self._timing.webhook_pause_seconds if is_webhook else self._desk.settings.notifications.pause_seconds
        )

    def _hand_out(self) -> datetime | None:
        """To the senders: one at a time for each notification, in order."""
        now = self._desk.now()
        with self._store.read() as conn:
            first = stored.list_next_deliveries(conn)
        with self._lock:
            free = [one for one in first if one.notification_id not in self._busy]
            due = [one for one in free if one.due_at <= now]
            self._busy |= {one.notification_id for one in due}
        for delivery in due:
            self._work.put(delivery)
        return min((one.due_at for one in free if one.due_at > now), default=None)

    def _send_all(self) -> None:
        while (delivery := self._work.get()) is not None:
            try:
                self._try(delivery)
            except Exception as error:  # noqa: BLE001 - it is tried again later
                log_failure(_FAILURE, error)
                time.sleep(_RETRY_SECONDS)
            with self._lock:
                self._busy.discard(delivery.notification_id)
            self._loop.wake()

    def _try(self, planned: Delivery) -> None:
        now = self._desk.now()
        again_at = now + timedelta(seconds=self._timing.pause_after(planned.tries))
        delivery = self._store.write(lambda tx: stored.begin_send(tx, planned, again_at))
        if delivery is None:
            return
        with self._store.read() as conn:
            notification = stored.find_notification(conn, delivery.notification_id)
            maker = None if notification is None else accounts.find_user(conn, notification.user)
            found = stored.get_events_with_jobs(conn, delivery.event_ids)
        if notification is None:
            return
        told = [NotifiedEvent(one.event, one.name, one.user, one.project) for one in found]
        problem, is_final = None, False
        try:
            if not _may_be_told(maker, notification):
                raise DeliveryFailed(f"{notification.user} may no longer be told of this", is_final=True)
            self._desk.send(
                notification,
                compose_message(notification, delivery, told, self._desk.settings.server.public_url),
                now,
            )
        except DeliveryFailed as error:
            problem, is_final = error.problem, error.is_final or delivery.tries >= self._timing.max_send_attempts
            log.warning(
                "notification_not_delivered", notification=notification.id, tries=delivery.tries, problem=problem
            )
        self._store.write(lambda tx: _note_outcome(tx, delivery, problem, is_final, now))


def matching_event_ids(notification: Notification, found: Sequence[EventWithJob]) -> list[int]:
    """Of these events, those the notification is about."""
    return [
        one.event.id for one in found if one.event.id > notification.after_event and _is_wanted(notification, one)
    ]


def _is_wanted(notification: Notification, one: EventWithJob) -> bool:
    if one.is_imported:
        return False
    triggers = triggers_of_event(one.event)
    if notification.project is not None:
        return one.project == notification.project and bool(triggers & set(notification.triggers))
    return one.user == notification.user and bool(triggers & {*notification.triggers, *one.notify})


def _may_be_told(maker: User | None, notification: Notification) -> bool:
    """With the rights its maker has now."""
    if maker is None or not maker.active:
        return False
    return notification.project is None or maker.may_manage(notification.project)


def _note_outcome(tx: Transaction, delivery: Delivery, problem: str | None, is_final: bool, now: datetime) -> None:
    state = DeliveryState.SENT if problem is None else DeliveryState.WAITING
    stored.finish_send(tx, delivery, DeliveryState.GIVEN_UP if is_final else state, problem)
    sent = {"sent_at": now} if problem is None else {}
    stored.update_notification(tx, delivery.notification_id, problem=problem, **sent)


@dataclass(frozen=True, slots=True)
class LateJobDetector:
    """Which jobs will start much later than was foretold: noted once as an event."""

    store: Store
    forecast_of: Callable[[Job], Forecast | None]
    late_seconds: float
    now: Callable[[], datetime]

    def record_late_jobs(self, wanted_by: Sequence[Notification]) -> None:
        """Only of jobs of which somebody wants to know it."""
        those = [one for one in wanted_by if LATE_EVENT in one.triggers]
        users = {one.user for one in those if one.project is None}
        projects = {one.project for one in those if one.project is not None}
        with self.store.read() as conn:
            promised = dict(stored.list_waiting_jobs_with_forecast(conn, users, projects))
            jobs = stored_jobs.get_jobs(conn, list(promised)) if promised else {}
        late: list[tuple[Job, str]] = []
        for job in jobs.values():
            if not any(_wants(notification, job) for notification in wanted_by):
                continue
            forecast, latest_at = self.forecast_of(job), promised[job.id]
            if forecast and forecast.likely_at > latest_at + timedelta(seconds=self.late_seconds):
                words = f"was to start by {_clock(latest_at)}, now likely at {_clock(forecast.likely_at)}"
                late.append((job, words))
        if late:
            self.store.write(lambda tx: self._write(tx, late))

    def _write(self, tx: Transaction, late: Sequence[tuple[Job, str]]) -> None:
        found = stored_jobs.get_jobs(tx.conn, [job.id for job, _ in late])
        for job, words in late:
            if found[job.id].state is JobState.PENDING:
                transitions.add_job_event(tx, found[job.id], LATE_EVENT, words, self.now())


def _wants(notification: Notification, job: Job) -> bool:
    if notification.project is not None:
        return notification.project == job.project and LATE_EVENT in notification.triggers
    return notification.user == job.user and LATE_EVENT in (*notification.triggers, *job.notify)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
