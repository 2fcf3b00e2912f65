"""What departments, projects and users were entitled to since a day, and what they received."""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from heliostat.errors import Invalid
from heliostat.models import Caller
from heliostat.scheduling.delivery_report import (
    AccountDelivery,
    DeliveryPeriod,
    build_delivery_report,
    history_start,
)
from heliostat.services.accounts.share_tree import hide_other_users
from heliostat.services.context import Context
from heliostat.store.job_spans import read_job_spans

__all__ = ["MAX_DAYS", "AccountDelivery", "ShareDelivery", "share_delivery"]
MAX_DAYS = 92  # a quarter: each day of a busy cluster takes some 10 ms
_DEFAULT_DAYS = 14
_MAX_STEPS_OF_A_DAY = 31


@dataclass(frozen=True, slots=True)
class ShareDelivery:
    period: DeliveryPeriod
    departments: tuple[AccountDelivery, ...]


def share_delivery(context: Context, caller: Caller, since: date | None = None) -> ShareDelivery:
    """Since the beginning of this day in UTC; None: two weeks. In days, or weeks if it is long."""
    period = _period(since, context.now())
    accounts, policy = context.scheduling_rules.share_accounts(), context.controller.policy
    with context.report_limit.acquire(caller.user.name), context.store.read() as conn:
        spans = read_job_spans(conn, history_start(period, policy), period.end)
        departments = build_delivery_report(spans, period, accounts, policy)
    return ShareDelivery(period, hide_other_users(departments, caller.user))


def _period(since: date | None, now: datetime) -> DeliveryPeriod:
    today = now.astimezone(UTC).date()
    first = since or today - timedelta(days=_DEFAULT_DAYS)
    days = (today - first).days
    if days < 0:
        hint = f"Today is {today} in UTC."
        raise Invalid(f"{first} is in the future.", hint, fields={"since": "is in the future"})
    if days > MAX_DAYS:
        hint = f"The first possible day is {today - timedelta(days=MAX_DAYS)}. helio report has no such limit."
        message = f"{first} is more than {MAX_DAYS} days ago."
        raise Invalid(message, hint, fields={"since": f"is more than {MAX_DAYS} days ago"})
    start = datetime.combine(first, time(), UTC)
    return DeliveryPeriod(start, now, step_days=1 if days <= _MAX_STEPS_OF_A_DAY else 7)
