"""What is told, in words and as JSON. Pure. Names of jobs are other people's: they must not steer a reader."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heliostat.models import JobEvent
from heliostat.models.notifications import ENDS_SOON_EVENT, LATE_EVENT, Delivery, Notification

MAX_LISTED_EVENTS = 20  # lines; the others are counted
_LONGEST = 200
_STATES = {
    "completed": "has completed",
    "failed": "has failed",
    "timed_out": "ran out of time",
    "lost": "was lost",
}


@dataclass(frozen=True, slots=True)
class NotifiedEvent:
    """An event, and of whose job."""

    event: JobEvent
    name: str
    user: str
    project: str


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    id: str  # of the delivery, the same for every try
    subject: str
    text: str
    webhook_body: bytes  # for programs


def compose_message(
    notification: Notification, delivery: Delivery, told: Sequence[NotifiedEvent], public_url: str | None
) -> NotificationMessage:
    """The same for every try. Without events: a test."""
    subject = _subject(told, delivery.more)
    lines = [_line(one, public_url) for one in told[:MAX_LISTED_EVENTS]]
    left = len(told) - len(lines) + delivery.more
    if left:
        lines.append(f"… and {left:,} more: {_counts(told[MAX_LISTED_EVENTS:], delivery.more)}")
    what = f"jobs of project {notification.project}" if notification.project else "jobs"
    foot = f"{notification.user} asked Heliostat to tell this of {what}. To end it: helio notification remove {notification.id}"
    body = {
        "id": delivery.id,
        "notification_id": notification.id,
        "text": subject,
        "events": [_fields(one, public_url) for one in told],
        "more": delivery.more,
    }
    text = "\n".join(
        [*(lines or ["This is a test. Notifications of Heliostat arrive here."]), "", "-- ", foot, ""]
    )
    return NotificationMessage(delivery.id, subject, text, json.dumps(body).encode())


def format_chat_body(letter: NotificationMessage) -> bytes:
    """For incoming webhooks of Slack, Mattermost and their like: calls nobody by name, and makes up no link."""
    text = letter.text.partition("\n\n-- \n")[0]
    for sign, harmless in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"), ("`", "'")):
        text = text.replace(sign, harmless)
    return json.dumps({"text": f"{_calm(letter.subject)}\n```\n{text}\n```"}).encode()


def _calm(text: str) -> str:
    """Without signs that mean something in a chat."""
    return "".join(sign if sign.isalnum() or sign in " .,:;()-+'…" else " " for sign in text)


def _subject(told: Sequence[NotifiedEvent], more: int) -> str:
    if not told:
        return "Heliostat: a test"
    if len(told) == 1 and not more:
        return f"Job {told[0].event.job_id} {_verb(told[0].event)} ({_plain(told[0].name, 60)})"
    return f"{len(told) + more:,} notifications of jobs: {_counts(told, more)}"


def _counts(told: Sequence[NotifiedEvent], more: int) -> str:
    found = Counter(_word(one.event) for one in told)
    words = [f"{count:,} {word}" for word, count in found.most_common()]
    return ", ".join([*words, *([f"{more:,} not listed"] if more else [])])


def _line(one: NotifiedEvent, public_url: str | None) -> str:
    event = one.event
    why = f": {_plain(event.detail)}" if event.detail else ""
    link = f" {public_url.rstrip('/')}/jobs/{event.job_id}" if public_url else ""
    who = f"{_plain(one.name, 60)}, {one.user}, {one.project}"
    return f"{event.at:%Y-%m-%d %H:%M} UTC: job {event.job_id} ({who}) {_verb(event)}{why}{link}"


def _verb(event: JobEvent) -> str:
    if event.kind == "running":
        return "has started"
    if event.kind == LATE_EVENT:
        return "will start later than foretold"
    if event.kind == ENDS_SOON_EVENT:
        return "ends soon"
    return _STATES.get(event.state.value, f"was {event.state.value}")


def _word(event: JobEvent) -> str:
    words = {"running": "started", LATE_EVENT: "late", ENDS_SOON_EVENT: "end soon"}
    return words.get(event.kind, event.state.value.replace("_", " "))


def _fields(one: NotifiedEvent, public_url: str | None) -> dict[str, object]:
    event = one.event
    return {
        "event_id": event.id,
        "trigger": {"running": "started"}.get(event.kind, event.kind),
        "job_id": event.job_id,
        "name": one.name,
        "user": one.user,
        "project": one.project,
        "state": event.state.value,
        "attempt": event.attempt,
        "at": event.at.isoformat().replace("+00:00", "Z"),
        "detail": event.detail,
        "url": f"{public_url.rstrip('/')}/jobs/{event.job_id}" if public_url else None,
    }


def _plain(text: str, most: int = _LONGEST) -> str:
    """One line that steers no terminal."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return shown if len(shown) <= most else shown[: most - 1] + "…"
