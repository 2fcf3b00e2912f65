"""The jobs of schedules: what is submitted, as whom, and as part of which transaction."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from heliostat.models import Caller, JobRequest, ParentReference, User
from heliostat.models import DependencyCondition as ParentRule
from heliostat.models.schedules import FIRING_STATES_WITHOUT_JOB, Firing, Schedule
from heliostat.schedules.timing import Timing, parse_timing
from heliostat.services.jobs.submission import SubmissionResult
from heliostat.store.database import Transaction

PreparedSubmission = Callable[[Transaction], SubmissionResult]


def parse_schedule_timing(schedule: Schedule, now: datetime) -> Timing:
    return parse_timing(schedule.timing or "", schedule.zone, now)


def caller_for_owner(owner: User) -> Caller:
    """Whoever asked for it, with the rights they have now."""
    return Caller(owner, "schedule", "")


def job_request_for(schedule: Schedule, due_at: datetime, after: Sequence[Firing] = ()) -> JobRequest:
    """Its job knows what it is for."""
    due = due_at.isoformat().replace("+00:00", "Z")
    about = {"HELIOSTAT_SCHEDULE": schedule.name, "HELIOSTAT_DUE_AT": due}
    request = schedule.request
    parents = tuple(ParentReference(str(number), ParentRule.ANY) for one in after for number in job_ids_of(one))
    spec = replace(request.spec, env={**request.spec.env, **about})
    return replace(
        request,
        spec=spec,
        name=request.name or schedule.name,
        project=schedule.project,
        after=(*request.after, *parents),
    )


def submit_in_savepoint(tx: Transaction, submission: PreparedSubmission) -> SubmissionResult:
    """As a part of this transaction: what it raises leaves nothing of it behind."""
    part, mark = Transaction(tx.conn, tx.ids), tx.ids.savepoint()
    try:
        with tx.conn.begin_nested():
            submitted = submission(part)
    except BaseException:
        tx.ids.roll_back(mark)
        raise
    tx.changes.extend(part.changes)
    return submitted


def job_ids_of(firing: Firing) -> range:
    """Their numbers; none, if it made none."""
    if firing.job_id is None or firing.state in FIRING_STATES_WITHOUT_JOB:
        return range(0)
    return range(firing.job_id, (firing.last_job_id or firing.job_id) + 1)
