"""Messages about alerts."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.models.notifications import Alert, Delivery, DeliveryState, Notification, NotificationChannel
from heliostat.notifications.messages import NotificationMessage, compose_message

AT = datetime(2026, 3, 1, 17, 34, tzinfo=UTC)
DOWN = Alert("a1", False, "NodeDown", "critical", "Node n1 is down.", "helio node show n1", AT)
NOTIFICATION = Notification(4, "ada", None, NotificationChannel.CHAT, "x", ("alerts",), "s", AT, 0)


def message(*alerts: Alert, more: int = 0) -> NotificationMessage:
    delivery = Delivery("d", 4, (), more, DeliveryState.WAITING, AT, AT, alerts=alerts)
    return compose_message(NOTIFICATION, delivery, (), None)


def test_a_message_says_what_is_wrong_and_which_command_helps() -> None:
    sent = message(DOWN)
    assert sent.subject == "Alert: Node n1 is down."
    first = "critical since 2026-03-01 17:34 UTC: Node n1 is down. Next: helio node show n1"
    assert sent.text.splitlines()[0] == first
    assert json.loads(sent.webhook_body)["alerts"] == [
        {
            "status": "firing",
            "name": "NodeDown",
            "severity": "critical",
            "summary": "Node n1 is down.",
            "command": "helio node show n1",
            "started_at": "2026-03-01T17:34:00Z",
        }
    ]


def test_several_alerts_are_counted_in_the_subject_and_listed_up_to_a_limit() -> None:
    sent = message(*[DOWN] * 25, replace(DOWN, is_resolved=True), more=3)
    assert sent.subject == "29 alerts: 25 firing, 1 resolved, 3 not listed"
    assert "… and 9 more alerts." in sent.text
    assert "resolved: Node n1 is down." in message(replace(DOWN, is_resolved=True)).text


@pytest.mark.parametrize(
    "command", ["rm -rf /", "helio ps; rm x", "helio ps $(rm x)", "helio ps\nrm x", "helio ps | sh", "sudo helio"]
)
def test_a_command_that_is_more_than_helio_with_words_is_not_shown(command: str) -> None:
    sent = message(replace(DOWN, command=command))
    assert "Next:" not in sent.text
    assert json.loads(sent.webhook_body)["alerts"][0]["command"] == ""


def test_control_characters_of_an_alert_are_not_sent() -> None:
    assert "\x1b" not in message(replace(DOWN, summary="a\x1b[2Jb\nc", severity="x\x1b")).text
