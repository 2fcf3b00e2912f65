"""The waste report of the past month as a message, once, to those who request it."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from heliostat.config import NotificationSettings
from heliostat.errors import Invalid
from heliostat.loops.monthly_reports import MonthlyReports
from heliostat.loops.notifier import Notifier, NotifierComponents
from heliostat.models import ProjectRole
from heliostat.models.notifications import (
    DeliveryState,
    Notification,
    NotificationChannel,
    parse_subscription_triggers,
    parse_triggers,
)
from heliostat.notifications.messages import NotificationMessage
from heliostat.services import notifications as services
from heliostat.services.accounts import projects
from heliostat.store import accounts
from heliostat.store import notifications as stored
from heliostat.store.samples import SampleStore
from support.waiting import wait_until
from unit.services.site import Site, new_site
from unit.services.test_waste_report import NOW, ran

SECONDS = 60
APRIL = datetime(2026, 4, 1, 0, 1, tzinfo=UTC)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        site.clock.at = NOW
        vars(site.context)["samples"] = SampleStore(tmp_path / "samples.db", 60)
        yield site
        site.context.samples.close()


def subscribed(site: Site, user: str = "root", **fields: Any) -> Notification:
    triggers = ("monthly_report",)
    draft = Notification(0, user, None, NotificationChannel.EMAIL, "a@x.org", triggers, "s", NOW, 0)
    return site.context.store.write(lambda tx: stored.add_notification(tx, replace(draft, **fields)))


def deliveries(site: Site, at: datetime) -> list[str]:
    """Those that wait, after the loop looked at this time."""
    site.clock.at = at
    with site.context.store.read() as conn:
        known = stored.list_notifications(conn)
    MonthlyReports(site.context).add_deliveries(known)
    with site.context.store.read() as conn:
        return [delivery.id for delivery in stored.list_next_deliveries(conn)]


def test_a_month_is_reported_once_in_the_first_days_of_the_next(cluster: Site) -> None:
    number = subscribed(cluster).id
    subscribed(cluster, triggers=("ended",))
    assert deliveries(cluster, APRIL - timedelta(minutes=2)) == []
    assert deliveries(cluster, APRIL) == [f"report-2026-03-{number}"]
    assert deliveries(cluster, APRIL + timedelta(days=2)) == [f"report-2026-03-{number}"]
    with cluster.context.store.read() as conn:
        (delivery,) = stored.list_next_deliveries(conn)
    cluster.context.store.write(lambda tx: stored.finish_send(tx, delivery, DeliveryState.SENT, None))
    assert deliveries(cluster, APRIL + timedelta(days=3)) == []


def test_a_notification_of_this_month_begins_with_the_next_report(cluster: Site) -> None:
    subscribed(cluster, created_at=APRIL)
    assert deliveries(cluster, APRIL + timedelta(days=1)) == []


def test_the_first_week_is_over(cluster: Site) -> None:
    subscribed(cluster)
    assert deliveries(cluster, APRIL + timedelta(days=8)) == []


def test_a_manager_gets_the_report_of_the_managed_projects(cluster: Site) -> None:
    cluster.project("vision")
    cluster.person("max", "vision")
    projects.add_member(cluster.context, cluster.root, "vision", "max", ProjectRole.MANAGER)
    cluster.person("ada", "vision")
    ran(cluster, 1, 2, [0.0, 0.0], user="ada", project="vision")
    ran(cluster, 2, 2, [0.0])
    notification = subscribed(cluster, "max")
    (number,) = deliveries(cluster, APRIL)
    assert number.endswith(str(notification.id))
    with cluster.context.store.read() as conn:
        (delivery,), owner = stored.list_next_deliveries(conn), accounts.find_user(conn, "max")
    assert owner is not None
    message = MonthlyReports(cluster.context).compose(notification, delivery, owner)
    assert message.subject == "GPU-hours of 2026-03: 4 idle"
    assert [line["name"] for line in json.loads(message.webhook_body)["report"]] == ["vision"]
    assert "vision                           4.0         0.0         4.0" in message.text


def test_a_report_is_sent_like_any_message(cluster: Site) -> None:
    sent: list[NotificationMessage] = []
    subscribed(cluster)
    cluster.clock.at = APRIL
    settings = replace(cluster.context.settings, notifications=NotificationSettings())
    components = NotifierComponents(
        *(cluster.context.store, settings, lambda _, message, __: sent.append(message), cluster.clock),
        monthly_reports=MonthlyReports(cluster.context),
    )
    notifier = Notifier(components)
    notifier.start()
    wait_until(lambda: sent, "the report is sent", SECONDS)
    notifier.close()
    assert "No jobs with GPUs." in sent[0].text


def test_a_job_cannot_request_a_monthly_report(cluster: Site) -> None:
    assert parse_subscription_triggers("ended,monthly_report") == ("ended", "monthly_report")
    with pytest.raises(ValueError, match="monthly_report"):
        parse_triggers("monthly_report")
    request = services.NotificationRequest(NotificationChannel.EMAIL, "a@x.org", ("never",))
    with pytest.raises(Invalid):
        services.add_notification(cluster.context, cluster.root, request)
