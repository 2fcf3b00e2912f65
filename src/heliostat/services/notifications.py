"""Notifications: add, list, test and remove the addresses that get messages about jobs."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.errors import Conflict, Forbidden, Invalid, NotFound, TooManyRequests, invalid_field
from heliostat.models import Caller, JobRequest, User
from heliostat.models.notifications import (
    ALERTS_TRIGGER,
    SUBSCRIPTION_TRIGGERS,
    Delivery,
    DeliveryState,
    Notification,
    NotificationChannel,
    NotificationId,
)
from heliostat.notifications.addresses import DeliveryFailed, check_address, redact_address
from heliostat.notifications.delivery import NotificationSender, new_salt, signing_secret
from heliostat.notifications.messages import compose_message
from heliostat.services.accounts.required_accounts import require_project
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
    triggers: tuple[str, ...] = ("ended",)  # (): only for jobs that request it
    project: str | None = None  # for all its jobs; None: for the user's own jobs


@dataclass(frozen=True, slots=True)
class NotificationView:
    """A notification without secrets, and the numbers of its deliveries."""

    notification: Notification
    address: str  # with possible secrets removed
    pending_deliveries: int
    failed_deliveries: int  # in the last month


@dataclass(frozen=True, slots=True)
class DeliveryTestResult:
    """The result of a test message."""

    arrived: bool
    problem: str | None


def list_notifications(context: Context, caller: Caller, *, all_users: bool = False) -> list[NotificationView]:
    """The caller's own, and those of projects the caller manages; with `all_users`, for admins, all."""
    if all_users:
        require_admin(caller.user)
    with context.store.read() as conn:
        listed = [each for each in stored.list_notifications(conn) if all_users or _may_see(caller.user, each)]
        counts = stored.count_deliveries(conn, [notification.id for notification in listed])
    return [_view(notification, counts) for notification in listed]


def add_notification(
    context: Context, caller: Caller, request: NotificationRequest
) -> tuple[NotificationView, str | None]:
    """With the secret that signs its messages, which is shown only once; None: they are not signed."""
    address = check_address(context.settings.notifications, request.channel, request.address)
    _check_triggers(request, caller.user)
    now = context.now()
    draft = Notification(
        0,
        caller.user.name,
        request.project,
        request.channel,
        address,
        request.triggers,
        new_salt(),
        now,
        after_event=0,
    )
    secret = (
        signing_secret(context.settings.home.notification_key, draft.salt)
        if request.channel is NotificationChannel.WEBHOOK
        else None
    )

    def change(tx: Transaction, actor: User) -> Notification:
        if request.project is not None:
            _check_manages(actor, request.project)
            require_project(tx, request.project)
        maximum = context.settings.notifications.max_per_user
        if len(stored.list_notifications(tx.conn, actor.name)) >= maximum:
            raise Conflict(
                f"You have {maximum} notifications, the maximum.",
                "Remove one: helio notification remove ID.",
            )
        created = stored.add_notification(tx, draft)
        target = f"notification {created.id}"
        accounts.add_audit_entry(tx, caller, "notification.add", target, _audit_details(created), now)
        return created

    return _view(write_as_caller(context, caller, change), {}), secret


def remove_notification(context: Context, caller: Caller, notification_id: NotificationId) -> None:
    def change(tx: Transaction, actor: User) -> None:
        current = _require_found(stored.find_notification(tx.conn, notification_id), actor, notification_id)
        stored.remove_notification(tx, notification_id)
        accounts.add_audit_entry(
            tx,
            caller,
            "notification.remove",
            f"notification {notification_id}",
            _audit_details(current),
            context.now(),
        )

    write_as_caller(context, caller, change)


def send_test_notification(
    context: Context, caller: Caller, notification_id: NotificationId
) -> DeliveryTestResult:
    """Send a test message now; the result says whether it arrived."""
    now = context.now()

    def change(tx: Transaction, actor: User) -> Notification:
        current = _require_found(stored.find_notification(tx.conn, notification_id), actor, notification_id)
        if current.tested_at is not None and _is_recent(now, current.tested_at):
            raise TooManyRequests(
                f"Notification {notification_id} has just been tested.", f"Try again in {_TEST_SECONDS:g} seconds."
            )
        stored.update_notification(tx, notification_id, tested_at=now)
        return current

    notification = write_as_caller(context, caller, change)
    test_delivery = Delivery(str(uuid.uuid4()), notification_id, (), 0, DeliveryState.WAITING, now, now)
    message = compose_message(notification, test_delivery, (), context.settings.server.public_url)
    try:
        NotificationSender(context.settings.home, context.settings.notifications).send(notification, message, now)
    except DeliveryFailed as error:
        return DeliveryTestResult(False, error.problem)
    return DeliveryTestResult(True, None)


def check_notify_requests(context: Context, caller: Caller, requests: Sequence[JobRequest]) -> None:
    """Raises Invalid if a job requests notifications and the caller has none. Not for schedules, which must go
    on."""
    if caller.via == "schedule" or not any(request.notify for request in requests):
        return
    with context.store.read() as conn:
        if stored.has_notifications(conn, caller.user.name):
            return
    raise Invalid(
        "notify: you have no notifications to send to.",
        "Add one: helio notification add email|chat|webhook ADDRESS --requested-only.",
        fields={"notify": "you have no notifications"},
    )


def _view(notification: Notification, counts: dict[tuple[NotificationId, DeliveryState], int]) -> NotificationView:
    pending = counts.get((notification.id, DeliveryState.WAITING), 0)
    failed = counts.get((notification.id, DeliveryState.GIVEN_UP), 0)
    address = redact_address(notification.channel, notification.address)
    return NotificationView(notification, address, pending, failed)


def _may_see(user: User, notification: Notification) -> bool:
    if notification.user == user.name:
        return True
    return notification.project is not None and user.may_manage(notification.project)


def _require_found(notification: Notification | None, user: User, notification_id: NotificationId) -> Notification:
    """The same message whether it does not exist or belongs to another user."""
    if notification is None or not (_may_see(user, notification) or user.is_admin):
        raise NotFound(
            f"There is no notification {notification_id} of yours.", "`helio notification list` lists them."
        )
    return notification


def _check_manages(user: User, project: str) -> None:
    if not user.may_manage(project):
        raise Forbidden(
            "Only a manager of the project or an admin can get notifications about all its jobs.",
            "Omit the project to get notifications about your own jobs.",
            fields={"project": "not one you manage"},
        )


def _check_triggers(request: NotificationRequest, user: User) -> None:
    if unknown := [trigger for trigger in request.triggers if trigger not in SUBSCRIPTION_TRIGGERS]:
        raise invalid_field("triggers", f"{unknown[0][:40]!a} is not one of {', '.join(SUBSCRIPTION_TRIGGERS)}")
    if ALERTS_TRIGGER in request.triggers and not user.is_admin:
        raise Forbidden("Only an admin can get alerts.", "Omit alerts.", fields={"triggers": "not for alerts"})
    if ALERTS_TRIGGER in request.triggers and request.project is not None:
        raise invalid_field("triggers", "alerts are about the whole cluster, not about a project")
    if request.project is not None and not request.triggers:
        raise invalid_field(
            "triggers", "must not be empty for a project: jobs request notifications only for their owners"
        )


def _is_recent(now: datetime, before: datetime) -> bool:
    return abs(now - before) < timedelta(seconds=_TEST_SECONDS)


def _audit_details(notification: Notification) -> dict[str, object]:
    return {
        "channel": notification.channel.value,
        "address": redact_address(notification.channel, notification.address),
        "project": notification.project,
        "triggers": list(notification.triggers),
    }
