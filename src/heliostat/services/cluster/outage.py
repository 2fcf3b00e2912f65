"""Whether the engine's own queue answers; while it does not, what is shown may be out of date."""

from heliostat.engines.contract import Finding, HasOwnQueue
from heliostat.models import EngineOutage
from heliostat.services.context import Context


def find_outage(context: Context) -> EngineOutage | None:
    """None: it answers, or the engine has no queue of its own."""
    return context.engine.outage() if isinstance(context.engine, HasOwnQueue) else None


def outage_notice(context: Context) -> str:
    """For all users; empty: none."""
    outage = find_outage(context)
    return f"{outage}. What is shown may be out of date; new jobs are kept and submitted later." if outage else ""


def check_outage(context: Context) -> list[Finding]:
    """For the doctor."""
    outage = find_outage(context)
    if outage is None:
        return []
    hint = "Jobs are kept and submitted when it answers again. See the other findings for the cause."
    return [Finding(outage.name.lower(), "problem", f"{outage}: {outage.reason}", hint)]
