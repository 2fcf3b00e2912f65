"""The waste report of the past month as a message, for notifications that request it.

Each has one delivery for a month, whose id names both, so that a restarted server adds no second one.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta

from heliostat.models import Caller, User
from heliostat.models.notifications import MONTHLY_REPORT_TRIGGER, Delivery, DeliveryState, Notification
from heliostat.notifications.messages import NotificationMessage, printable, sent_because
from heliostat.services.cluster.usage_reports import PeriodRequest
from heliostat.services.context import Context
from heliostat.services.fair_use.waste_report import WasteReportLine, waste_report
from heliostat.store import notifications as stored
from heliostat.store.database import Transaction

_LAST_DAY = 7  # of a month on which the report is sent; old deliveries are removed after a month
_MAX_LINES = 50
_COLUMNS = ("GRANTED", "USED", "IDLE", "RETURNED")


@dataclass(frozen=True, slots=True)
class MonthlyReports:
    context: Context

    def add_deliveries(self, notifications: Sequence[Notification]) -> None:
        """At the beginning of a month, for notifications that existed before it."""
        now = self.context.now()
        begin = datetime(now.year, now.month, 1, tzinfo=UTC)
        if now.day > _LAST_DAY:
            return
        month = f"{begin - timedelta(days=1):%Y-%m}"
        deliveries = [
            Delivery(f"report-{month}-{one.id}", one.id, (), 0, DeliveryState.WAITING, now, now, report=month)
            for one in notifications
            if MONTHLY_REPORT_TRIGGER in one.triggers and one.created_at < begin
        ]
        with self.context.store.read() as conn:
            new = [delivery for delivery in deliveries if not stored.has_delivery(conn, delivery.id)]

        def change(tx: Transaction) -> None:
            for delivery in new:
                if stored.find_notification(tx.conn, delivery.notification_id) is not None:
                    stored.add_delivery(tx, delivery)

        if new:
            self.context.store.write(change)

    def compose(self, notification: Notification, delivery: Delivery, owner: User) -> NotificationMessage:
        """With what its owner may see now; of a project only that project."""
        month = delivery.report or ""
        caller = Caller(owner, "notification", "local")
        lines = waste_report(self.context, caller, PeriodRequest(month), "project")
        lines = [line for line in lines if notification.project in (None, line.name)]
        subject = f"GPU-hours of {month}: {sum(line.idle_gpu_hours for line in lines):,.0f} idle"
        body = {
            "id": delivery.id,
            "notification_id": notification.id,
            "text": subject,
            "events": [],
            "more": 0,
            "report": [asdict(line) for line in lines],
        }
        text = "\n".join([*self._table(lines, month), "", "-- ", sent_because(notification), ""])
        return NotificationMessage(delivery.id, subject, text, json.dumps(body).encode())

    def _table(self, lines: Sequence[WasteReportLine], month: str) -> list[str]:
        header = f"{'PROJECT':<24}" + "".join(f"{column:>12}" for column in _COLUMNS)
        rows = [_row(line) for line in lines[:_MAX_LINES]] or ["No jobs with GPUs."]
        public_url = self.context.settings.server.public_url
        link = f"{public_url.rstrip('/')}/reports/waste?month={month}" if public_url else ""
        return [header, *rows, "", f"All: helio report waste --month {month} --by user {link}".rstrip()]


def _row(line: WasteReportLine) -> str:
    hours = (line.granted_gpu_hours, line.used_gpu_hours, line.idle_gpu_hours, line.returned_gpu_hours)
    return f"{printable(line.name, 23):<24}" + "".join(f"{value:>12,.1f}" for value in hours)
