import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.config import NotificationSettings
from heliostat.loops.notifier import NotificationTiming, Notifier, NotifierComponents, matching_event_ids
from heliostat.models import Dependency, DependencyCondition, JobEvent, JobState, ProjectRole
from heliostat.models.fair_use import IDLE_EVENT, IDLE_MANAGER_EVENT
from heliostat.models.notifications import (
    ENDS_SOON_EVENT,
    NOTIFICATION_TRIGGERS,
    Alert,
    Notification,
    NotificationChannel,
    triggers_of_event,
)
from heliostat.notifications.addresses import DeliveryFailed
from heliostat.notifications.messages import NotificationMessage
from heliostat.services.accounts import projects, users
from heliostat.services.alerts import report_alerts
from heliostat.store import dependencies, job_writes
from heliostat.store import notifications as stored
from heliostat.store.notifications import EventWithJob
from support.waiting import wait_until
from unit.services.site import Site, a_job, new_site

SECONDS = 60
HASTY = NotificationTiming(
    first_pause_seconds=0.02, max_pause_seconds=0.02, batch_seconds=0.02, webhook_pause_seconds=0.02
)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with new_site(tmp_path) as site:
        yield site


@dataclass
class Post:
    """Takes letters, or refuses them as a test wants it."""

    taken: list[tuple[Notification, NotificationMessage]] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    refusal: DeliveryFailed | None = None

    def send(self, notification: Notification, letter: NotificationMessage, at: datetime) -> None:
        self.tried.append(letter.id)
        if self.refusal is not None:
            raise self.refusal
        self.taken.append((notification, letter))

    def events(self) -> list[dict[str, Any]]:
        return [event for _, letter in self.taken for event in json.loads(letter.webhook_body)["events"]]


@contextmanager
def notifying(site: Site, post: Post, timing: NotificationTiming = HASTY, **settings: Any) -> Iterator[Notifier]:
    said = replace(site.context.settings, notifications=NotificationSettings(**settings))
    notifier = Notifier(
        NotifierComponents(
            site.context.store,
            said,
            post.send,
            lambda: datetime.now(UTC),
            describe_efficiency=lambda job_id: f"Used {job_id} of 4 GPUs.",
            timing=timing,
        )
    )
    notifier.start()
    yield notifier
    notifier.close()


def a_notification(
    site: Site, user: str = "root", channel: NotificationChannel = NotificationChannel.WEBHOOK, **fields: Any
) -> Notification:
    draft = Notification(0, user, None, channel, "https://x.example.org/", ("ended",), "s", datetime.now(UTC), 0)
    return site.context.store.write(lambda tx: stored.add_notification(tx, replace(draft, **fields)))


def ends(site: Site, first: int, count: int = 1, **fields: Any) -> None:
    jobs = [replace(a_job(number, site.clock.at), **fields) for number in range(first, first + count)]
    site.context.store.write(lambda tx: job_writes.add_jobs(tx, jobs))
    moved = [
        job_writes.JobTransition(n, JobState.CANCELLED, "ended", datetime.now(UTC))
        for n in range(first, first + count)
    ]
    site.context.store.write(lambda tx: job_writes.apply_transitions(tx, moved))


def test_what_ends_is_told_once(site: Site) -> None:
    post = Post()
    a_notification(site)
    with notifying(site, post):
        ends(site, 1)
        wait_until(lambda: post.taken, "it is told", SECONDS)
        ends(site, 2)
        wait_until(lambda: len(post.taken) == 2, "the next is told", SECONDS)
    assert [(one["job_id"], one["state"], one["trigger"]) for one in post.events()] == [
        (1, "cancelled", "ended"),
        (2, "cancelled", "ended"),
    ]
    assert [one["efficiency"] for one in post.events()] == ["Used 1 of 4 GPUs.", "Used 2 of 4 GPUs."]
    assert "UTC. Used 1 of 4 GPUs.\n" in post.taken[0][1].text


def test_what_happened_before_a_notification_was_made_is_not_told(site: Site) -> None:
    post = Post()
    ends(site, 1)
    a_notification(site)
    with notifying(site, post):
        ends(site, 2)
        wait_until(lambda: post.taken, "it is told", SECONDS)
    assert [one["job_id"] for one in post.events()] == [2]


def test_what_happens_while_nobody_tells_is_told_by_the_next_server(site: Site) -> None:
    post = Post(refusal=DeliveryFailed("away"))
    a_notification(site)
    with notifying(site, post):
        ends(site, 1)
        wait_until(lambda: post.tried, "it is tried", SECONDS)
    ends(site, 2)
    post.refusal = None
    with notifying(site, post):
        wait_until(lambda: len(post.events()) == 2, "both are told", SECONDS)
    assert [one["job_id"] for one in post.events()] == [1, 2]


def test_every_try_has_the_same_id_and_what_comes_meanwhile_waits_behind_it(site: Site) -> None:
    post = Post(refusal=DeliveryFailed("away"))
    a_notification(site)
    with notifying(site, post):
        ends(site, 1)
        wait_until(lambda: len(post.tried) >= 3, "it is tried again and again", SECONDS)
        ends(site, 2, 50)
        assert len(set(post.tried)) == 1
        post.refusal = None
        wait_until(lambda: len(post.events()) == 51, "all are told", SECONDS)
    assert [one["job_id"] for one in post.events()] == list(range(1, 52))
    assert len(post.taken) == 2, "what waited is told together"


def test_who_is_gone_for_ever_is_given_up(site: Site) -> None:
    post = Post(refusal=DeliveryFailed("gone", is_final=True))
    notification = a_notification(site)
    with notifying(site, post):
        ends(site, 1)
        wait_until(lambda: problem_of(site, notification) == "gone", "the problem is noted", SECONDS)
    assert len(post.tried) == 1


def test_after_a_day_of_tries_it_is_given_up(site: Site) -> None:
    post = Post(refusal=DeliveryFailed("away"))
    a_notification(site)
    with notifying(site, post, replace(HASTY, max_send_attempts=3)):
        ends(site, 1)
        wait_until(lambda: len(post.tried) == 3, "it is tried three times", SECONDS)
        ends(site, 2)
        wait_until(lambda: len(set(post.tried)) == 2, "the next has its turn", SECONDS)
    usual = NotificationTiming()
    assert 20 * 3600 < sum(map(usual.pause_after, range(usual.max_send_attempts))) < 30 * 3600


def test_ten_thousand_ends_are_a_few_mails_and_none_is_left_out(site: Site) -> None:
    post = Post()
    a_notification(site, channel=NotificationChannel.EMAIL)
    began = time.monotonic()
    with notifying(site, post, pause_seconds=3):
        for first in range(1, 10_001, 500):
            ends(site, first, 500)
        wait_until(lambda: _told(post) == 10_000, "all are told", SECONDS)
    assert len(post.taken) <= 2 + (time.monotonic() - began) / 3, "they come no closer together than was said"
    assert all(len(letter.text) < 10_000 for _, letter in post.taken)


def test_programs_get_all_of_ten_thousand_ends_in_order(site: Site) -> None:
    post = Post()
    a_notification(site)
    with notifying(site, post):
        for first in range(1, 10_001, 500):
            ends(site, first, 500)
        wait_until(lambda: len(post.events()) == 10_000, "all are told", SECONDS)
    assert [one["job_id"] for one in post.events()] == list(range(1, 10_001))
    assert len(post.taken) < 100


def test_a_receiver_that_hangs_holds_up_nobody_else(site: Site) -> None:
    hangs = threading.Event()
    post = Post()

    def send(notification: Notification, letter: NotificationMessage, at: datetime) -> None:
        if notification.id == 1:
            hangs.wait(SECONDS)
        post.send(notification, letter, at)

    a_notification(site)
    a_notification(site)
    desk = NotifierComponents(
        site.context.store, site.context.settings, send, lambda: datetime.now(UTC), timing=HASTY
    )
    notifier = Notifier(desk)
    notifier.start()
    ends(site, 1)
    wait_until(lambda: [notification.id for notification, _ in post.taken] == [2], "the other is told", SECONDS)
    hangs.set()
    wait_until(lambda: len(post.taken) == 2, "then the slow one", SECONDS)
    notifier.close()


def test_who_is_deactivated_or_manages_no_longer_is_told_nothing(site: Site) -> None:
    post = Post()
    site.person("anna")
    site.project("vision")
    a_notification(site, "anna")
    a_notification(site, "anna", project="vision")
    users.update_user(site.context, site.root, "anna", users.UserChange(active=False))
    last = a_notification(site)
    with notifying(site, post):
        ends(site, 1, user="anna")
        ends(site, 2, project="vision")
        wait_until(
            lambda: any(notification.id == last.id for notification, _ in post.taken), "the admin is told", SECONDS
        )
        wait_until(lambda: problem_of(site, first_of(site, "anna")), "why not is noted", SECONDS)
    assert {notification.user for notification, _ in post.taken} == {"root"}


def test_what_others_emit_is_told_too(site: Site) -> None:
    post = Post()
    a_notification(site, triggers=("ends_soon",))
    job = site.add_job(1)
    with notifying(site, post):
        site.context.store.write(
            lambda tx: job_writes.add_job_event(tx, job, ENDS_SOON_EVENT, "in 10 minutes", datetime.now(UTC))
        )
        wait_until(lambda: post.taken, "it is told", SECONDS)
    assert post.taken[0][1].subject == "Job 1 ends soon (job)"


def test_a_failed_build_is_told_of_the_job_that_waited_for_it(site: Site) -> None:
    post = Post()
    a_notification(site, triggers=("failed",))
    after = (Dependency(1, DependencyCondition.BUILT),)
    site.add_job(1, kind="build", name="environment 8f2b", state=JobState.RUNNING)
    child = site.add_job(2, name="train.py", after=after, parents_left=1)
    reason = "its environment cannot be built: no tiny"
    failed = job_writes.JobTransition(1, JobState.FAILED, "ended", datetime.now(UTC), detail=reason)
    with notifying(site, post):
        site.context.store.write(lambda tx: dependencies.add_dependencies(tx, [child], set()))
        site.context.store.write(lambda tx: job_writes.apply_transitions(tx, [failed]))
        wait_until(lambda: post.taken, "it is told", SECONDS)
    message = post.taken[0][1]
    assert message.subject == "Job 2 failed (train.py)"
    assert reason in message.text


triggers = st.lists(st.sampled_from(NOTIFICATION_TRIGGERS), unique=True).map(tuple)


@given(
    triggers,
    triggers,
    st.sampled_from(["running", "ended", "late", "ends_soon", "submitted", "requeued"]),
    st.sampled_from(JobState),
    st.sampled_from(["ada", "bob"]),
    st.sampled_from(["p", "q"]),
    st.sampled_from([None, "p"]),
)
def test_everybody_is_told_what_they_asked_for_and_nothing_else(
    wanted: tuple[str, ...],
    asked: tuple[str, ...],
    kind: str,
    state: JobState,
    user: str,
    project: str,
    of: str | None,
) -> None:
    notification = Notification(1, "ada", of, NotificationChannel.EMAIL, "x", wanted, "s", datetime.now(UTC), 0)
    event = JobEvent(7, 1, 1, datetime.now(UTC), kind, state)
    told = matching_event_ids(notification, [EventWithJob(event, "n", user, project, asked, True)]) == [7]
    meant = set(wanted) if of else {*wanted, *asked}
    is_about = project == of if of else user == "ada"
    assert told == (is_about and bool(triggers_of_event(event) & meant))
    assert not matching_event_ids(notification, [EventWithJob(event, "n", user, project, asked, False)]), (
        "it was brought in"
    )
    assert not matching_event_ids(
        replace(notification, after_event=7), [EventWithJob(event, "n", user, project, asked, True)]
    )


@pytest.mark.parametrize(
    ("user", "project", "kind", "told"),
    [
        ("ada", None, IDLE_EVENT, True),
        ("ada", "vision", IDLE_EVENT, True),
        ("ada", "speech", IDLE_EVENT, False),
        ("max", None, IDLE_EVENT, False),
        ("max", None, IDLE_MANAGER_EVENT, True),
        ("max", "vision", IDLE_MANAGER_EVENT, True),
        ("eve", None, IDLE_MANAGER_EVENT, False),
    ],
)
def test_idle_gpus_are_told_to_the_owner_and_then_to_managers_whatever_their_triggers(
    user: str, project: str | None, kind: str, told: bool
) -> None:
    notification = Notification(1, user, project, NotificationChannel.EMAIL, "x", (), "s", datetime.now(UTC), 0)
    event = JobEvent(7, 1, 1, datetime.now(UTC), kind, JobState.RUNNING)
    managers = frozenset({"max"}) if kind == IDLE_MANAGER_EVENT else frozenset()
    row = EventWithJob(event, "n", "ada", "vision", (), True, managers)
    assert matching_event_ids(notification, [row]) == ([7] if told else [])


def test_managers_get_a_message_about_idle_gpus_of_their_project(site: Site) -> None:
    site.project("vision")
    for name in ("ada", "max", "eve"):
        site.person(name, "vision")
    projects.add_member(site.context, site.root, "vision", "max", ProjectRole.MANAGER)
    post = Post()
    for name in ("ada", "max", "eve"):
        a_notification(site, name, triggers=())
    job = site.add_job(1, user="ada", project="vision", state=JobState.RUNNING)
    with notifying(site, post):
        site.context.store.write(
            lambda tx: job_writes.add_job_event(tx, job, IDLE_MANAGER_EVENT, "idle", datetime.now(UTC))
        )
        wait_until(lambda: len(post.taken) == 2, "both are told", SECONDS)
    assert sorted(notification.user for notification, _ in post.taken) == ["ada", "max"]
    assert "does not use its GPUs" in post.taken[0][1].text


def test_a_manager_who_lost_the_role_gets_no_message(site: Site) -> None:
    site.project("vision")
    site.person("ada", "vision")
    site.person("max", "vision")
    projects.add_member(site.context, site.root, "vision", "max", ProjectRole.MANAGER)
    post = Post()
    notification = a_notification(site, "max")
    job = site.add_job(1, user="ada", project="vision", state=JobState.RUNNING)
    post.refusal = DeliveryFailed("down")
    with notifying(site, post):
        site.context.store.write(
            lambda tx: job_writes.add_job_event(tx, job, IDLE_MANAGER_EVENT, "idle", datetime.now(UTC))
        )
        wait_until(lambda: post.tried, "it is tried", SECONDS)
        projects.add_member(site.context, site.root, "vision", "max", ProjectRole.MEMBER)
        post.refusal = None
        wait_until(
            lambda: _problem_of(site, notification) is not None and not _waits(site), "it is given up", SECONDS
        )
    assert post.taken == []


def _waits(site: Site) -> bool:
    with site.context.store.read() as conn:
        return bool(stored.list_next_deliveries(conn))


def _problem_of(site: Site, notification: Notification) -> str | None:
    with site.context.store.read() as conn:
        found = stored.find_notification(conn, notification.id)
    return None if found is None else found.problem


def _told(post: Post) -> int:
    return sum(
        len(body["events"]) + body["more"] for _, one in list(post.taken) if (body := json.loads(one.webhook_body))
    )


def first_of(site: Site, user: str) -> Notification:
    with site.context.store.read() as conn:
        return stored.list_notifications(conn, user)[0]


def problem_of(site: Site, notification: Notification) -> str | None:
    with site.context.store.read() as conn:
        found = stored.find_notification(conn, notification.id)
    return None if found is None else found.problem


def test_alerts_and_events_are_sent_in_messages_of_their_own(site: Site) -> None:
    post = Post()
    a_notification(site, triggers=("ended", "alerts"))
    alert = Alert("a1", False, "NodeDown", "critical", "Node n1 is down.", "helio nodes", datetime.now(UTC))
    report_alerts(site.context, site.root, [alert])
    ends(site, 1)
    with notifying(site, post):
        wait_until(lambda: len(post.taken) == 2, "both are sent", SECONDS)
    assert sorted(letter.subject[:5] for _, letter in post.taken) == ["Alert", "Job 1"]


def test_an_admin_who_is_no_longer_one_gets_no_alerts(site: Site) -> None:
    post = Post()
    site.person("eve")
    a_notification(site, user="eve", triggers=("alerts",))
    alert = Alert("a1", False, "NodeDown", "critical", "Node n1 is down.", "helio nodes", datetime.now(UTC))
    report_alerts(site.context, site.root, [alert])
    with notifying(site, post):
        wait_until(lambda: the_notification(site).problem, "it is refused", SECONDS)
    assert "no longer has permission" in (the_notification(site).problem or "")
    assert not post.taken


def the_notification(site: Site) -> Notification:
    with site.context.store.read() as conn:
        (found,) = stored.list_notifications(conn)
    return found
