"""Alerts of Prometheus become messages to the admins, once each."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.errors import Forbidden, Invalid
from heliostat.loops.gpu_history import record_gpu_use
from heliostat.models import Caller
from heliostat.models.gpu_errors import GpuError
from heliostat.models.notifications import Alert, Delivery, DeliveryState, NotificationChannel
from heliostat.services import notifications
from heliostat.services.alerts import report_alerts
from heliostat.services.notifications import NotificationRequest
from heliostat.store import notifications as stored
from heliostat.store.gpus import GpuUse, add_gpu_error, return_gpu
from unit.services.site import Site
from unit.services.test_notifications import allow

HOOK = NotificationRequest(NotificationChannel.WEBHOOK, "https://hooks.example.org/secret", ("alerts",))
DOWN = Alert(
    "a1", False, "NodeDown", "critical", "Node n1 is down.", "helio node show n1", datetime(2026, 3, 1, tzinfo=UTC)
)
UP = replace(DOWN, is_resolved=True)


@pytest.fixture(autouse=True)
def allowing(site: Site) -> None:
    allow(site, hosts=("hooks.example.org",))


def subscribe(site: Site, caller: Caller, request: NotificationRequest = HOOK) -> int:
    return notifications.add_notification(site.context, caller, request)[0].notification.id


def newest(site: Site, number: int) -> Delivery | None:
    with site.context.store.read() as conn:
        return stored.find_newest_delivery(conn, number)


def alerts_of(site: Site, number: int) -> list[tuple[str, bool]]:
    found = newest(site, number)
    return [(alert.fingerprint, alert.is_resolved) for alert in found.alerts] if found else []


def test_an_alert_is_reported_when_it_starts_and_when_it_ends_and_repeats_are_ignored(site: Site) -> None:
    number = subscribe(site, site.root)
    for alert in (UP, DOWN, DOWN, UP, UP, DOWN):
        report_alerts(site.context, site.root, [alert])
    assert alerts_of(site, number) == [("a1", False), ("a1", True), ("a1", False)]


def test_alerts_after_the_message_was_sent_are_another_message(site: Site) -> None:
    number = subscribe(site, site.root)
    report_alerts(site.context, site.root, [DOWN])
    first = newest(site, number)
    assert first is not None
    site.context.store.write(lambda tx: stored.begin_send(tx, first, site.clock() + timedelta(hours=1)))
    site.context.store.write(lambda tx: stored.finish_send(tx, first, DeliveryState.SENT, None))
    site.clock.at += timedelta(seconds=1)
    report_alerts(site.context, site.root, [UP])
    assert alerts_of(site, number) == [("a1", True)]


def test_many_alerts_are_counted(site: Site) -> None:
    number = subscribe(site, site.root)
    report_alerts(site.context, site.root, [replace(DOWN, fingerprint=f"{n:x}") for n in range(250)])
    found = newest(site, number)
    assert found is not None
    assert (len(found.alerts), found.more) == (100, 150)


def test_an_alert_whose_end_was_missed_is_reported_again_after_a_week(site: Site) -> None:
    number = subscribe(site, site.root)
    report_alerts(site.context, site.root, [DOWN])
    site.clock.at += timedelta(days=8)
    report_alerts(site.context, site.root, [DOWN])
    assert alerts_of(site, number) == [("a1", False), ("a1", False)]


def test_only_admins_report_alerts_and_subscribe_to_them(site: Site) -> None:
    anna = site.person("anna")
    with pytest.raises(Forbidden):
        report_alerts(site.context, anna, [DOWN])
    with pytest.raises(Forbidden, match="Only an admin can get alerts"):
        subscribe(site, anna)


def test_alerts_are_not_about_a_project(site: Site) -> None:
    site.project("vision")
    with pytest.raises(Invalid, match="whole cluster"):
        subscribe(site, site.root, replace(HOOK, project="vision"))


def test_other_notifications_get_no_alerts(site: Site) -> None:
    number = subscribe(site, site.root, replace(HOOK, triggers=("ended",)))
    report_alerts(site.context, site.root, [DOWN])
    assert newest(site, number) is None


def test_a_gpu_that_failed_is_one_message_and_its_return_another(site: Site) -> None:
    number = subscribe(site, site.root)
    error = GpuError("GPU-a", "0", "xid_79", site.clock.at, "boot:1")
    site.context.store.write(lambda tx: add_gpu_error(tx, "n1", error))
    use = [GpuUse("GPU-a", "n1", "0", 60.0, 50), GpuUse("GPU-b", "n1", "1", 0.0, None)]
    for _ in range(3):
        site.context.store.write(lambda tx: record_gpu_use(tx, site.context, use))
    assert alerts_of(site, number) == [("gpu-GPU-a", False)]
    [alert] = newest(site, number).alerts  # type: ignore[union-attr]
    assert alert.summary.startswith("GPU 0 of node n1 failed: it has fallen off the bus (XID 79); reboot the node")
    assert alert.command == "helio node test-gpu n1 0"
    site.context.store.write(lambda tx: return_gpu(tx, "GPU-a", site.clock.at))
    for _ in range(3):
        site.context.store.write(lambda tx: record_gpu_use(tx, site.context, use))
    assert alerts_of(site, number) == [("gpu-GPU-a", False), ("gpu-GPU-a", True)]
