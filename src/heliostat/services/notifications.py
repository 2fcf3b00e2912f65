"""Who is told what, and how: made, listed, tried out and removed by those it concerns."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests, invalid_field
from heliostat.models import Caller, JobRequest, User
from heliostat.models.notifications import (
    NOTIFICATION_TRIGGERS,
    Delivery,
    DeliveryState,
    Notification,
    NotificationChannel,
    NotificationId,
)
from heliostat.notifications.addresses import DeliveryFailed, check_address, redact_address
from heliostat.notifications.delivery import NotificationSender, new_salt, signing_secret
from heliostat.notifications.messages import compose_message
from heliostat.services.accounts.lookup import require_project
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import accounts
from heliostat.store import notifications as stored
from heliostat.store.database import Transaction

_TEST_SECONDS = 5.0  # between two tests of one notification


@dataclass(frozen=True, slots=True)
class NotificationRequest:
    channel: NotificationChannel
    address: str
    triggers: tuple[str, ...] = ("ended",)  # (): only of jobs that ask for it
    project: str | None = None  # of all its jobs; None: of one's own


@dataclass(frozen=True, slots=True)
class NotificationView:
    """A notification as people may see it."""

    notification: Notification
    address: str  # without what may be a secret
    waiting: int  # deliveries on their way
    given_up: int  # of the last month


@dataclass(frozen=True, slots=True)
class DeliveryTestResult:
    """Of a test."""

    arrived: bool
    problem: str | None


def list_notifications(context: Context, caller: Caller, *, all_users: bool = False) -> list[NotificationView]:
    """One's own, and those of projects one manages; everybody's for admins."""
    if all_users:
        require_admin(caller.user)
    with context.store.read() as conn:
        found = [one for one in stored.list_notifications(conn) if all_users or _concerns(caller.user, one)]
        counts = stored.count_deliveries(conn, [one.id for one in found])
    return [_shown(one, counts) for one in found]


def add_notification(
    context: Context, caller: Caller, wish: NotificationRequest
) -> tuple[NotificationView, str | None]:
    """With the secret that signs it, which is told this once; None: it is not signed."""
    address = check_address(context.settings.notifications, wish.channel, wish.address)
    _check_occasions(wish)
    now = context.now()
    draft = Notification(
        0, caller.user.name, wish.project, wish.channel, address, wish.triggers, new_salt(), now, after_event=0
    )
    secret = (
        signing_secret(context.settings.home.notification_key, draft.salt)
        if wish.channel is NotificationChannel.WEBHOOK
        else None
    )

    def change(tx: Transaction, actor: User) -> Notification:
        if wish.project is not None:
            _check_manages(actor, wish.project)
            require_project(tx, wish.project)
        most = context.settings.notifications.max_per_user
        if len(stored.list_notifications(tx.conn, actor.name)) >= most:
            raise Conflict(
                f"You have {most} notifications, and may not have more.",
                "Remove one: helio notification remove ID.",
            )
        made = stored.add_notification(tx, draft)
        accounts.add_audit_entry(tx, caller, "notification.add", f"notification {made.id}", _audited(made), now)
        return made

    return _shown(write_as_caller(context, caller, change), {}), secret


def remove_notification(context: Context, caller: Caller, notification_id: NotificationId) -> None:
    def change(tx: Transaction, actor: User) -> None:
        found = _found(stored.find_notification(tx.conn, notification_id), actor, notification_id)
        stored.remove_notification(tx, notification_id)
        accounts.add_audit_entry(
            tx, caller, "notification.remove", f"notification {notification_id}", _audited(found), context.now()
        )

    write_as_caller(context, caller, change)


def send_test_notification(
    context: Context, caller: Caller, notification_id: NotificationId
) -> DeliveryTestResult:
    """Send a test at once, and say whether it arrived."""
    now = context.now()

    def change(tx: Transaction, actor: User) -> Notification:
        found = _found(stored.find_notification(tx.conn, notification_id), actor, notification_id)
        if found.tested_at is not None and _is_close(now, found.tested_at):
            raise TooManyRequests("It was tested a moment ago.", f"Try again in {_TEST_SECONDS:g} seconds.")
        stored.update_notification(tx, notification_id, tested_at=now)
        return found

    notification = write_as_caller(context, caller, change)
    nothing = Delivery(str(uuid.uuid4()), notification_id, (), 0, DeliveryState.WAITING, now, now)
    letter = compose_message(notification, nothing, (), context.settings.server.public_url)
    try:
        NotificationSender(context.settings.home, context.settings.notifications).send(notification, letter, now)
    except DeliveryFailed as error:
        return DeliveryTestResult(False, error.problem)
    return DeliveryTestResult(True, None)


def check_notify_requests(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> None:
    """Whoever wants to be told of a job has said where; a schedule goes on without."""
    if caller.via == "schedule" or not any(request.notify for request in requests):
        return
    with context.store.read() as conn:
        if stored.has_notifications(conn, caller.user.name):
            return
    raise Invalid(
        "notify: you have not said yet where to tell you.",
        "First: helio notification add email|chat|webhook ADDRESS --requested-only.",
        fields={"notify": "you have no notifications"},
    )


def _shown(one: Notification, counts: dict[tuple[NotificationId, DeliveryState], int]) -> NotificationView:
    waiting = counts.get((one.id, DeliveryState.WAITING), 0)
    given_up = counts.get((one.id, DeliveryState.GIVEN_UP), 0)
    return NotificationView(one, redact_address(one.channel, one.address), waiting, given_up)


def _concerns(user: User, notification: Notification) -> bool:
    if notification.user == user.name:
        return True
    return notification.project is not None and user.may_manage(notification.project)


def _found(notification: Notification | None, user: User, notification_id: NotificationId) -> Notification:
    """The same words whether it is not there or not theirs."""
    if notification is None or not (_concerns(user, notification) or user.is_admin):
        raise NotFound(
            f"There is no notification {notification_id} of yours.", "`helio notification list` lists them."
        )
    return notification


def _check_manages(user: User, project: str) -> None:
    if not user.may_manage(project):
        raise Forbidden(
            "Only a manager of a project, or an admin, may be told of all its jobs.",
            "Leave the project out to be told of your own.",
            fields={"project": "not one you manage"},
        )


def _check_occasions(wish: NotificationRequest) -> None:
    if unknown := [one for one in wish.triggers if one not in NOTIFICATION_TRIGGERS]:
        raise invalid_field("triggers", f"{unknown[0][:40]!a} is not one of {', '.join(NOTIFICATION_TRIGGERS)}")
    if wish.project is not None and not wish.triggers:
        raise invalid_field("triggers", "must name something: jobs ask for their owners only")


def _is_close(now: datetime, before: datetime) -> bool:
    return abs(now - before) < timedelta(seconds=_TEST_SECONDS)


def _audited(notification: Notification) -> dict[str, object]:
    return {
        "channel": notification.channel.value,
        "address": redact_address(notification.channel, notification.address),
        "project": notification.project,
        "triggers": list(notification.triggers),
    }
