from dataclasses import replace

import pytest

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests
from heliostat.models import Caller, JobRequest, JobSpec, ProjectRole
from heliostat.models.notifications import NotificationChannel
from heliostat.services import notifications
from heliostat.services.accounts import projects
from heliostat.services.notifications import NotificationRequest
from heliostat.store import accounts
from support.notification_receivers import running_http_receiver
from unit.services.site import Site

HOOK = NotificationRequest(NotificationChannel.WEBHOOK, "https://hooks.example.org/secret")


@pytest.fixture(autouse=True)
def allowing(site: Site) -> None:
    allow(site, hosts=("hooks.example.org",), max_per_user=3)


def allow(site: Site, **settings: object) -> None:
    notifications = replace(site.context.settings.notifications, **settings)  # type: ignore[arg-type]
    site.context.settings = replace(site.context.settings, notifications=notifications)  # type: ignore[misc]


def test_a_secret_is_shown_once_and_the_address_is_redacted(site: Site) -> None:
    shown, secret = notifications.add_notification(site.context, site.root, HOOK)
    assert secret is not None
    assert secret.startswith("hns_")
    (listed,) = notifications.list_notifications(site.context, site.root)
    assert (listed.address, listed.notification.id) == ("https://hooks.example.org/…", shown.notification.id)
    assert "secret" not in repr(site.audit())
    with site.context.store.read() as conn:
        dump = "\n".join(conn.connection.dbapi_connection.iterdump())  # type: ignore[union-attr]
    assert secret not in dump
    assert secret.removeprefix("hns_") not in dump


def test_users_see_and_remove_only_their_own_notifications(site: Site) -> None:
    anna, bob = site.person("anna"), site.person("bob")
    made, _ = notifications.add_notification(site.context, anna, HOOK)
    assert notifications.list_notifications(site.context, bob) == []
    with pytest.raises(NotFound):
        notifications.remove_notification(site.context, bob, made.notification.id)
    with pytest.raises(NotFound):
        notifications.send_test_notification(site.context, bob, made.notification.id)
    with pytest.raises(Forbidden):
        notifications.list_notifications(site.context, bob, all_users=True)
    assert len(notifications.list_notifications(site.context, site.root, all_users=True)) == 1
    notifications.remove_notification(site.context, anna, made.notification.id)
    assert notifications.list_notifications(site.context, anna) == []


def test_only_managers_get_notifications_of_a_project(site: Site) -> None:
    site.project("vision")
    anna, bob = site.person("anna", "vision"), site.person("bob", "vision")
    of_project = replace(HOOK, project="vision")
    with pytest.raises(Forbidden, match="manager"):
        notifications.add_notification(site.context, anna, of_project)
    projects.add_member(site.context, site.root, "vision", "bob", ProjectRole.MANAGER)
    bob = _again(site, bob)
    made, _ = notifications.add_notification(site.context, bob, of_project)
    assert made.notification.project == "vision"
    assert notifications.list_notifications(site.context, anna) == []
    with pytest.raises(Invalid, match="must not be empty"):
        notifications.add_notification(site.context, bob, replace(of_project, triggers=()))


def test_a_notification_for_an_unknown_project_is_refused(site: Site) -> None:
    with pytest.raises(NotFound):
        notifications.add_notification(site.context, site.root, replace(HOOK, project="nowhere"))


def test_the_number_of_notifications_is_limited(site: Site) -> None:
    for _ in range(3):
        notifications.add_notification(site.context, site.root, HOOK)
    with pytest.raises(Conflict, match="3 notifications"):
        notifications.add_notification(site.context, site.root, HOOK)


def test_an_unknown_trigger_is_refused(site: Site) -> None:
    with pytest.raises(Invalid, match="triggers"):
        notifications.add_notification(site.context, site.root, replace(HOOK, triggers=("exploded",)))


def test_a_test_reports_its_result_and_is_rate_limited(site: Site) -> None:
    with running_http_receiver() as receiver:
        allow(site, hosts=(receiver.host,), networks=("127.0.0.0/8",))
        made, _ = notifications.add_notification(
            site.context, site.root, NotificationRequest(NotificationChannel.CHAT, receiver.url)
        )
        assert notifications.send_test_notification(site.context, site.root, made.notification.id).arrived
        assert "a test" in receiver.received[0].json["text"]
        with pytest.raises(TooManyRequests):
            notifications.send_test_notification(site.context, site.root, made.notification.id)
        site.clock.turn(seconds=6)
        allow(site, networks=())
        outcome = notifications.send_test_notification(site.context, site.root, made.notification.id)
        assert not outcome.arrived
        assert "private address" in str(outcome.problem)
        assert len(receiver.received) == 1


def test_a_job_with_notify_needs_a_notification(site: Site) -> None:
    request = JobRequest(JobSpec(("true",)), notify=("ended",))
    with pytest.raises(Invalid, match="you have no notifications"):
        notifications.check_notify_requests(site.context, site.root, [request])
    notifications.check_notify_requests(site.context, replace(site.root, via="schedule"), [request])
    notifications.add_notification(site.context, site.root, HOOK)
    notifications.check_notify_requests(site.context, site.root, [request])


def _again(site: Site, caller: Caller) -> Caller:
    """With the rights they have now."""
    with site.context.store.read() as conn:
        user = accounts.find_user(conn, caller.user.name)
    assert user is not None
    return replace(caller, user=user)
