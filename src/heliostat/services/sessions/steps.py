"""How far a session has come, from the queue to its server: in a sentence."""

from heliostat.models import ACTIVE, Job, JobState, Rule
from heliostat.services.context import Context
from heliostat.store import jobs as stored


def step_of(context: Context, job: Job, *, is_up: bool) -> str:
    match job.state:
        case JobState.RUNNING:
            return "Its server is up." if is_up else "Its server is starting."
        case JobState.STARTING:
            return f"It is being started on {job.node}."
        case JobState.HELD:
            return "It is held."
        case JobState.PENDING | JobState.PREEMPTED:
            return _building(context, job) or "It waits in the queue."
    text = job.reason or ""
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else "It is over."


def _building(context: Context, job: Job) -> str:
    """What it waits for before its turn; empty: nothing is left to be built."""
    ids = [one.parent for one in job.after if one.rule is Rule.BUILT]
    if not ids or job.parents_left == 0:
        return ""
    with context.store.read() as conn:
        builds = [build for build in stored.get_jobs(conn, ids).values() if not build.is_over]
    if not builds:
        return ""
    if any(build.state in ACTIVE for build in builds):
        return "Its software is being built, once for everybody; this takes a minute or two."
    return "Its software waits to be built, once for everybody."
