"""What concerns all users on every page and in every response."""

from heliostat.services.cluster.outage import outage_notice
from heliostat.services.context import Context


def notice_for_all(context: Context) -> str:
    """Empty: none."""
    return " ".join(notice for notice in (_pause_notice(context), outage_notice(context)) if notice)


def _pause_notice(context: Context) -> str:
    pause = context.pause.current
    return f"Heliostat is paused: {pause.reason}. No job starts until an admin runs helio resume." if pause else ""
