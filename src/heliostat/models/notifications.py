"""Who wants to be told what, how, and what is on its way to them; and what admins tell everybody."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.events import JobEvent
from heliostat.models.states import JobState

NotificationId = int

NOTIFICATION_TRIGGERS = ("started", "ended", "failed", "late", "ends_soon")
"""What can be told of a job. `ended` is every end, `failed` one that nobody wanted."""
_FAILED = frozenset({JobState.FAILED, JobState.TIMED_OUT, JobState.LOST})
LATE_EVENT, ENDS_SOON_EVENT = "late", "ends_soon"
"""The kinds of events of a job that will start later than foretold, and of one whose time is nearly over."""
NOTIFIED_EVENT_KINDS = ("running", "ended", LATE_EVENT, ENDS_SOON_EVENT)


class NotificationChannel(StrEnum):
    WEBHOOK = "webhook"  # JSON for programs, signed
    CHAT = "chat"  # {"text": …}: what Slack, Mattermost and others take
    EMAIL = "email"


class DeliveryState(StrEnum):
    WAITING = "waiting"
    SENT = "sent"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True)
class Notification:
    """A standing wish to be told."""

    id: NotificationId
    user: str  # who made it, and with whose rights it is told
    project: str | None  # of all jobs of this project; None: of one's own jobs
    channel: NotificationChannel
    address: str  # a URL, or an address of e-mail; a URL may hold a secret, so it is never shown whole
    triggers: tuple[str, ...]  # of every job; () tells only of jobs that ask for it
    salt: str  # what its signing secret is made from, with a key that is not in the database
    created_at: datetime
    after_event: int  # what happened until then is not told
    sent_at: datetime | None = None  # the last one that arrived
    problem: str | None = None  # why the last try did not
    tested_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message. While it waits for its first try, what happens meanwhile is added to it."""

    id: str  # unique; the same for every try
    notification_id: NotificationId
    event_ids: tuple[int, ...]
    more: int  # events beyond those
    state: DeliveryState
    created_at: datetime
    due_at: datetime  # not before
    tries: int = 0
    problem: str | None = None


def triggers_of_event(event: JobEvent) -> frozenset[str]:
    """What an event is to those who want to be told; empty: nothing."""
    if event.kind == "running":
        return frozenset({"started"})
    if event.kind == "ended":
        return frozenset({"ended", "failed"} if event.state in _FAILED else {"ended"})
    return frozenset({event.kind}) if event.kind in (LATE_EVENT, ENDS_SOON_EVENT) else frozenset()


def parse_triggers(value: object) -> tuple[str, ...]:
    """`ended,failed`, or a list of such words: each once. Raises ValueError with a sentence."""
    words = [word for word in value.split(",") if word.strip()] if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"write words out of {', '.join(NOTIFICATION_TRIGGERS)}")
    if len(words) > len(NOTIFICATION_TRIGGERS) * 2:
        raise ValueError(f"there are only {', '.join(NOTIFICATION_TRIGGERS)}")
    found = tuple(dict.fromkeys(word.strip() for word in words))
    if unknown := [word for word in found if word not in NOTIFICATION_TRIGGERS]:
        raise ValueError(f"{unknown[0][:40]!a} is not one of {', '.join(NOTIFICATION_TRIGGERS)}")
    return found


@dataclass(frozen=True, slots=True)
class Announcement:
    """Shown to everybody until it ends; None: until it is taken away."""

    id: int
    text: str
    author: str
    created_at: datetime
    ends_at: datetime | None = None

    def is_expired(self, now: datetime) -> bool:
        return self.ends_at is not None and self.ends_at <= now
