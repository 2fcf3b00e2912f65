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


def test_a_secret_is_told_once_and_a_path_never_again(site: Site) -> None:
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


def test_everybody_sees_and_removes_their_own_only(site: Site) -> None:
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


def test_of_a_project_only_its_managers_are_told(site: Site) -> None:
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
    with pytest.raises(Invalid, match="must name something"):
        notifications.add_notification(site.context, bob, replace(of_project, triggers=()))


def test_of_a_project_that_is_not_there_nobody_is_told(site: Site) -> None:
    with pytest.raises(NotFound):
        notifications.add_notification(site.context, site.root, replace(HOOK, project="nowhere"))


def test_nobody_has_more_than_admins_allow(site: Site) -> None:
    for _ in range(3):
        notifications.add_notification(site.context, site.root, HOOK)
    with pytest.raises(Conflict, match="3 notifications"):
        notifications.add_notification(site.context, site.root, HOOK)


def test_what_cannot_happen_cannot_be_told(site: Site) -> None:
    with pytest.raises(Invalid, match="triggers"):
        notifications.add_notification(site.context, site.root, replace(HOOK, triggers=("exploded",)))


def test_a_test_says_whether_it_arrived_and_is_not_a_way_to_flood(site: Site) -> None:
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


def test_a_job_that_is_to_be_told_of_needs_somebody_to_tell(site: Site) -> None:
    request = JobRequest(JobSpec(("true",)), notify=("ended",))
    with pytest.raises(Invalid, match="where to tell you"):
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
