"""Jobs of schedules: the job request, the owner as caller, and submission in a savepoint."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from heliostat.models import Caller, JobRequest, ParentReference, User
from heliostat.models import DependencyCondition as ParentRule
from heliostat.models.schedules import FIRING_STATES_WITHOUT_JOB, Firing, Schedule
from heliostat.schedules.due_times import Timing, parse_timing
from heliostat.services.jobs.submission import SubmissionResult
from heliostat.store.database import Transaction

PreparedSubmission = Callable[[Transaction], SubmissionResult]


def parse_schedule_timing(schedule: Schedule, now: datetime) -> Timing:
    return parse_timing(schedule.timing or "", schedule.zone, now)


def caller_for_owner(owner: User) -> Caller:
    """The owner as caller, with their current permissions."""
    return Caller(owner, "schedule", "")


def job_request_for(schedule: Schedule, due_at: datetime, after: Sequence[Firing] = ()) -> JobRequest:
    """The schedule's name and due time are in the environment of the job."""
    due = due_at.isoformat().replace("+00:00", "Z")
    variables = {"HELIOSTAT_SCHEDULE": schedule.name, "HELIOSTAT_DUE_AT": due}
    request = schedule.request
    parents = tuple(
        ParentReference(str(number), ParentRule.ANY) for firing in after for number in job_ids_of(firing)
    )
    spec = replace(request.spec, env={**request.spec.env, **variables})
    return replace(
        request,
        spec=spec,
        name=request.name or schedule.name,
        project=schedule.project,
        after=(*request.after, *parents),
    )


def submit_in_savepoint(tx: Transaction, submission: PreparedSubmission) -> SubmissionResult:
    """Submit as part of this transaction; an error rolls back only the submission."""
    nested, id_savepoint = Transaction(tx.conn, tx.ids), tx.ids.savepoint()
    try:
        with tx.conn.begin_nested():
            submitted = submission(nested)
    except BaseException:
        tx.ids.roll_back(id_savepoint)
        raise
    tx.changes.extend(nested.changes)
    return submitted


def job_ids_of(firing: Firing) -> range:
    """The ids of its jobs; empty: it has no job."""
    if firing.job_id is None or firing.state in FIRING_STATES_WITHOUT_JOB:
        return range(0)
    return range(firing.job_id, (firing.last_job_id or firing.job_id) + 1)
