"""Texts and JSON of notification messages. Pure.

Job names and details come from users: they must not contain control characters or chat markup in the result.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from heliostat.models import JobEvent
from heliostat.models.notifications import ENDS_SOON_EVENT, IDLE_EVENTS, LATE_EVENT, Alert, Delivery, Notification

MAX_LISTED_EVENTS = 20  # lines; further events are counted
_MAX_LENGTH = 200
# An admin may paste it into a shell: nothing but words.
_COMMAND = re.compile(r"helio( [A-Za-z0-9_.:/=,@-]+)+")
_VERBS_BY_STATE = {
    "completed": "completed",
    "failed": "failed",
    "timed_out": "timed out",
    "lost": "was lost",
}


@dataclass(frozen=True, slots=True)
class NotifiedEvent:
    """An event with the name, the owner and the project of its job."""

    event: JobEvent
    name: str
    user: str
    project: str
    efficiency: str = ""  # sentences about the usage of an ended job; empty: none


@dataclass(frozen=True, slots=True)
class NotificationMessage:
    id: str  # of the delivery, the same for every attempt to send it
    subject: str
    text: str
    webhook_body: bytes  # JSON


def compose_message(
    notification: Notification, delivery: Delivery, events: Sequence[NotifiedEvent], public_url: str | None
) -> NotificationMessage:
    """The same for every attempt to send it. Without events and alerts: a test message."""
    if delivery.alerts:
        subject, lines = _alert_subject(delivery), _alert_lines(delivery)
    else:
        subject, lines = _subject(events, delivery.more), _event_lines(events, delivery.more, public_url)
    body = {
        "id": delivery.id,
        "notification_id": notification.id,
        "text": subject,
        "events": [_fields(event, public_url) for event in events],
        "alerts": [_alert_fields(alert) for alert in delivery.alerts],
        "more": delivery.more,
    }
    footer = sent_because(notification, "alerts" if delivery.alerts else "jobs")
    text = "\n".join([*(lines or ["This is a test message of Heliostat."]), "", "-- ", footer, ""])
    return NotificationMessage(delivery.id, subject, text, json.dumps(body).encode())


def sent_because(notification: Notification, about: str = "jobs") -> str:
    """The last lines of a message."""
    scope = f"{about} of project {notification.project}" if notification.project else about
    return (
        f"Sent because {notification.user} set up this notification for {scope}. "
        f"To remove it: helio notification remove {notification.id}"
    )


def find_safe_command(text: str) -> str:
    """The command, if it is safe to paste it into a shell; otherwise nothing."""
    return text if _COMMAND.fullmatch(text) else ""


def format_chat_body(message: NotificationMessage) -> bytes:
    """For incoming webhooks of Slack, Mattermost and similar chats: without mentions and links from job names."""
    text = message.text.partition("\n\n-- \n")[0]
    for sign, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("@", "@\u200b"), ("`", "'")):
        text = text.replace(sign, escaped)
    return json.dumps({"text": f"{_without_markup(message.subject)}\n```\n{text}\n```"}).encode()


def _without_markup(text: str) -> str:
    """Without characters that have a meaning in a chat."""
    return "".join(sign if sign.isalnum() or sign in " .,:;()-+'…" else " " for sign in text)


def _subject(events: Sequence[NotifiedEvent], more: int) -> str:
    if not events:
        return "Heliostat: a test"
    if len(events) == 1 and not more:
        return f"Job {events[0].event.job_id} {_verb(events[0].event)} ({printable(events[0].name, 60)})"
    return f"{len(events) + more:,} notifications about jobs: {_counts(events, more)}"


def _event_lines(events: Sequence[NotifiedEvent], more: int, public_url: str | None) -> list[str]:
    lines = [_line(event, public_url) for event in events[:MAX_LISTED_EVENTS]]
    unlisted = len(events) - len(lines) + more
    if unlisted:
        lines.append(f"… and {unlisted:,} more: {_counts(events[MAX_LISTED_EVENTS:], more)}")
    return lines


def _counts(events: Sequence[NotifiedEvent], more: int) -> str:
    counter = Counter(_short_state(notified.event) for notified in events)
    words = [f"{count:,} {state}" for state, count in counter.most_common()]
    return ", ".join([*words, *([f"{more:,} not listed"] if more else [])])


def _line(notified: NotifiedEvent, public_url: str | None) -> str:
    """`Job 7 (train.py, ada, vision) completed at 2026-03-01 17:34 UTC. Used 1 of 2 GPUs.`"""
    event = notified.event
    job = f"Job {event.job_id} ({printable(notified.name, 60)}, {notified.user}, {notified.project})"
    link = f" {public_url.rstrip('/')}/jobs/{event.job_id}" if public_url else ""
    time = f"{event.at:%Y-%m-%d %H:%M} UTC"
    if event.kind in {LATE_EVENT, ENDS_SOON_EVENT, *IDLE_EVENTS}:
        return f"{time}: {job} {_verb(event)}{_detail(event)}{link}"
    efficiency = f" {notified.efficiency}" if notified.efficiency else ""
    return f"{job} {_verb(event)} at {time}{_detail(event)}{efficiency}{link}"


def _detail(event: JobEvent) -> str:
    """The end of the sentence."""
    detail = printable(event.detail or "").rstrip(".")
    if not detail:
        return "."
    return f" ({detail})." if detail.startswith("exit code") else f": {detail}."


def _verb(event: JobEvent) -> str:
    if event.kind == "running":
        return "started"
    if event.kind == LATE_EVENT:
        return "will start later than forecast"
    if event.kind == ENDS_SOON_EVENT:
        return "ends soon"
    if event.kind in IDLE_EVENTS:
        return "does not use its GPUs"
    return _VERBS_BY_STATE.get(event.state.value, f"was {event.state.value}")


def _short_state(event: JobEvent) -> str:
    words = {"running": "started", LATE_EVENT: "late", ENDS_SOON_EVENT: "end soon"}
    words |= dict.fromkeys(IDLE_EVENTS, "idle")
    return words.get(event.kind, event.state.value.replace("_", " "))


def _alert_subject(delivery: Delivery) -> str:
    if len(delivery.alerts) == 1 and not delivery.more:
        alert = delivery.alerts[0]
        return f"{'Resolved' if alert.is_resolved else 'Alert'}: {printable(alert.summary, 120)}"
    counts = Counter("resolved" if alert.is_resolved else "firing" for alert in delivery.alerts)
    words = [f"{count:,} {state}" for state, count in counts.most_common()]
    more = [f"{delivery.more:,} not listed"] if delivery.more else []
    return f"{len(delivery.alerts) + delivery.more:,} alerts: {', '.join([*words, *more])}"


def _alert_lines(delivery: Delivery) -> list[str]:
    lines = [_alert_line(alert) for alert in delivery.alerts[:MAX_LISTED_EVENTS]]
    unlisted = len(delivery.alerts) - len(lines) + delivery.more
    return [*lines, f"… and {unlisted:,} more alerts."] if unlisted else lines


def _alert_line(alert: Alert) -> str:
    """`critical since 2026-03-01 17:34 UTC: Node gpu1 is down. Next: helio node show gpu1`"""
    summary = printable(alert.summary).rstrip(".")
    if alert.is_resolved:
        return f"resolved: {summary}."
    command = find_safe_command(alert.command)
    severity = printable(alert.severity, 20) or "firing"
    next_step = f" Next: {command}" if command else ""
    return f"{severity} since {alert.started_at:%Y-%m-%d %H:%M} UTC: {summary}.{next_step}"


def _alert_fields(alert: Alert) -> dict[str, object]:
    return {
        "status": "resolved" if alert.is_resolved else "firing",
        "name": alert.name,
        "severity": alert.severity,
        "summary": alert.summary,
        "command": find_safe_command(alert.command),
        "started_at": alert.started_at.isoformat().replace("+00:00", "Z"),
    }


def _fields(notified: NotifiedEvent, public_url: str | None) -> dict[str, object]:
    event = notified.event
    return {
        "event_id": event.id,
        "trigger": {"running": "started"}.get(event.kind, event.kind),
        "job_id": event.job_id,
        "name": notified.name,
        "user": notified.user,
        "project": notified.project,
        "state": event.state.value,
        "attempt": event.attempt,
        "at": event.at.isoformat().replace("+00:00", "Z"),
        "detail": event.detail,
        "efficiency": notified.efficiency or None,
        "url": f"{public_url.rstrip('/')}/jobs/{event.job_id}" if public_url else None,
    }


def printable(text: str, max_length: int = _MAX_LENGTH) -> str:
    """One line without control characters."""
    shown = "".join(sign if sign.isprintable() else " " for sign in text)
    return shown if len(shown) <= max_length else shown[: max_length - 1] + "…"
