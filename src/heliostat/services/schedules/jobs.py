"""The jobs of schedules: what is submitted, as whom, and as part of which transaction."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from heliostat.models import Caller, JobRequest, Parent, User
from heliostat.models import Rule as ParentRule
from heliostat.models.schedules import NOT_FIRED, Firing, Schedule
from heliostat.schedules.timing import Timing, parse_timing
from heliostat.services.jobs.submission import Submitted
from heliostat.store.database import Transaction

Submission = Callable[[Transaction], Submitted]


def timing_of(schedule: Schedule, now: datetime) -> Timing:
    return parse_timing(schedule.timing or "", schedule.zone, now)


def as_owner(owner: User) -> Caller:
    """Whoever asked for it, with the rights they have now."""
    return Caller(owner, "schedule", "")


def request_for(schedule: Schedule, due_at: datetime, after: Sequence[Firing] = ()) -> JobRequest:
    """Its job knows what it is for."""
    due = due_at.isoformat().replace("+00:00", "Z")
    about = {"HELIOSTAT_SCHEDULE": schedule.name, "HELIOSTAT_DUE_AT": due}
    request = schedule.request
    parents = tuple(Parent(str(number), ParentRule.ANY) for one in after for number in jobs_of(one))
    spec = replace(request.spec, env={**request.spec.env, **about})
    return replace(
        request,
        spec=spec,
        name=request.name or schedule.name,
        project=schedule.project,
        after=(*request.after, *parents),
    )


def within(tx: Transaction, submission: Submission) -> Submitted:
    """As a part of this transaction: what it raises leaves nothing of it behind."""
    part, mark = Transaction(tx.conn, tx.ids), tx.ids.mark()
    try:
        with tx.conn.begin_nested():
            submitted = submission(part)
    except BaseException:
        tx.ids.go_back(mark)
        raise
    tx.changes.extend(part.changes)
    return submitted


def jobs_of(firing: Firing) -> range:
    """Their numbers; none, if it made none."""
    if firing.job_id is None or firing.state in NOT_FIRED:
        return range(0)
    return range(firing.job_id, (firing.last_job_id or firing.job_id) + 1)
