"""Alerts of Prometheus, and of GPUs that failed, become notifications of the admins who subscribed to them."""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from heliostat.models import Caller, User
from heliostat.models.notifications import ALERTS_TRIGGER, Alert, Delivery, DeliveryState, Notification
from heliostat.models.notifications import NotificationChannel as Channel
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin, write_as_caller
from heliostat.store import alerts as stored_alerts
from heliostat.store import notifications as stored
from heliostat.store.database import Transaction

_MAX_ALERTS_PER_DELIVERY = 100
_MAX_KNOWN = 10_000
# Alertmanager repeats a firing alert every few hours. Without repeats its end was missed.
_FORGET_AFTER = timedelta(days=7)


def report_alerts(context: Context, caller: Caller, alerts: Sequence[Alert]) -> None:
    """From outside, for example from Alertmanager."""
    require_admin(caller.user)

    def change(tx: Transaction, actor: User) -> None:
        require_admin(actor)
        add_alerts(tx, context, alerts)

    write_as_caller(context, caller, change)


def add_alerts(tx: Transaction, context: Context, alerts: Sequence[Alert]) -> None:
    """Add new and ended alerts to the messages of the admins. An alert that is repeated changes nothing."""
    stored_alerts.forget_firing_alerts(tx, context.now() - _FORGET_AFTER, _MAX_KNOWN)
    changed = [alert for alert in alerts if _is_change(tx, context, alert)]
    if not changed:
        return
    for notification in stored.list_notifications(tx.conn):
        if ALERTS_TRIGGER in notification.triggers:
            _add_to_delivery(tx, context, notification, changed)
    tx.changes.notifications_changed = True  # wakes the notifier


def _is_change(tx: Transaction, context: Context, alert: Alert) -> bool:
    if alert.is_resolved:
        return stored_alerts.remove_firing_alert(tx, alert.fingerprint)
    return stored_alerts.add_firing_alert(tx, alert.fingerprint, context.now())


def _add_to_delivery(
    tx: Transaction, context: Context, notification: Notification, alerts: Sequence[Alert]
) -> None:
    """To the delivery that waits, or to a new one."""
    now, newest = context.now(), stored.find_newest_delivery(tx.conn, notification.id)
    is_webhook = notification.channel is Channel.WEBHOOK
    pause = timedelta(seconds=0 if is_webhook else context.settings.notifications.pause_seconds)
    draft = Delivery(str(uuid.uuid4()), notification.id, (), 0, DeliveryState.WAITING, now, now)
    if newest is None:
        stored.add_delivery(tx, _with_alerts(draft, alerts))
    elif newest.alerts and newest.state is DeliveryState.WAITING and not newest.tries:
        filled = _with_alerts(newest, alerts)
        stored.set_delivery_alerts(tx, newest.id, filled.alerts, filled.more)
    else:
        stored.add_delivery(tx, _with_alerts(replace(draft, due_at=max(now, newest.due_at + pause)), alerts))


def _with_alerts(delivery: Delivery, alerts: Sequence[Alert]) -> Delivery:
    together = (*delivery.alerts, *alerts)
    shown = together[:_MAX_ALERTS_PER_DELIVERY]
    return replace(delivery, alerts=shown, more=delivery.more + len(together) - len(shown))
