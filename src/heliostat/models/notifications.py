"""Notifications, their triggers, channels and deliveries; announcements of admins."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.events import JobEvent
from heliostat.models.fair_use import IDLE_EVENT, IDLE_MANAGER_EVENT
from heliostat.models.states import JobState

NotificationId = int

NOTIFICATION_TRIGGERS = ("started", "ended", "failed", "late", "ends_soon")
"""Events of a job that can trigger a notification. `ended` is any end; `failed` is failed, timed out or lost."""
MONTHLY_REPORT_TRIGGER = "monthly_report"
ALERTS_TRIGGER = "alerts"  # of the monitoring; only for admins
SUBSCRIPTION_TRIGGERS = (*NOTIFICATION_TRIGGERS, MONTHLY_REPORT_TRIGGER, ALERTS_TRIGGER)
"""Triggers of a notification; a job can request only those about itself."""
_FAILED = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.LOST})
LATE_EVENT, ENDS_SOON_EVENT = "late", "ends_soon"
"""Event kinds: the job will start later than forecast; its time limit is near."""
IDLE_EVENTS = frozenset({IDLE_EVENT, IDLE_MANAGER_EVENT})
"""Sent to every notification of their receivers, because they need an answer."""
NOTIFIED_EVENT_KINDS = ("running", "ended", LATE_EVENT, ENDS_SOON_EVENT, *sorted(IDLE_EVENTS))


class NotificationChannel(StrEnum):
    WEBHOOK = "webhook"  # JSON for programs, signed
    CHAT = "chat"  # {"text": …}, the format of Slack, Mattermost and others
    EMAIL = "email"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Alert:
    """An alert of Prometheus or of a GPU that has started or has ended."""

    fingerprint: str  # identifies its labels
    is_resolved: bool
    name: str
    severity: str
    summary: str
    command: str  # that helps; empty: unknown
    started_at: datetime


@dataclass(frozen=True, slots=True)
class Notification:
    """A subscription to events of jobs, or to alerts."""

    id: NotificationId
    user: str  # its owner, whose permissions apply
    project: str | None  # for all jobs of this project; None: for the owner's jobs
    channel: NotificationChannel
    address: str  # a URL or an e-mail address; a URL may contain a secret, so only its host is shown
    triggers: tuple[str, ...]  # for every job; (): only for jobs that request it
    salt: str  # for its signing secret, together with a key that is not in the database
    created_at: datetime
    after_event: int  # earlier events are not sent
    sent_at: datetime | None = None  # last successful delivery
    problem: str | None = None  # why the last delivery failed
    tested_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message. Until the first attempt to send it, further events are added."""

    id: str  # unique; the same for every attempt to send it
    notification_id: NotificationId
    event_ids: tuple[int, ...]
    more: int  # number of further events
    state: DeliveryState
    created_at: datetime
    due_at: datetime  # earliest time to send it
    tries: int = 0
    problem: str | None = None
    report: str | None = None  # the month that it reports, instead of events
    alerts: tuple[Alert, ...] = ()  # instead of events

    @property
    def is_about_jobs(self) -> bool:
        return self.report is None and not self.alerts


def triggers_of_event(event: JobEvent) -> frozenset[str]:
    """The triggers that an event matches."""
    if event.kind == "running":
        return frozenset({"started"})
    if event.kind == "ended":
        return frozenset({"ended", "failed"} if event.state in _FAILED else {"ended"})
    return frozenset({event.kind}) if event.kind in (LATE_EVENT, ENDS_SOON_EVENT) else frozenset()


def parse_subscription_triggers(value: object) -> tuple[str, ...]:
    return parse_triggers(value, SUBSCRIPTION_TRIGGERS)


def parse_triggers(value: object, known: tuple[str, ...] = NOTIFICATION_TRIGGERS) -> tuple[str, ...]:
    """`ended,failed`, or a list: each trigger once. Raises ValueError."""
    words = [word for word in value.split(",") if word.strip()] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"write one or more of {', '.join(known)}")
    if len(words) > len(known) * 2:
        raise ValueError(f"too many values; the valid ones are {', '.join(known)}")
    triggers = tuple(dict.fromkeys(word.strip() for word in words))
    if unknown := [word for word in triggers if word not in known]:
        raise ValueError(f"{unknown[0][:40]!a} is not one of {', '.join(known)}")
    return triggers


@dataclass(frozen=True, slots=True)
class Announcement:
    """A text for all users. Without `ends_at`, it is shown until it is removed."""

    id: int
    text: str
    author: str
    created_at: datetime
    ends_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now
