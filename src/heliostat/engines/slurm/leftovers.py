"""Jobs in Slurm of an earlier server that the database may not know."""

import pwd
from collections.abc import Iterable

from heliostat.engines.contract import LeftoverAttempt
from heliostat.engines.slurm.client import SlurmClient, SlurmRefused
from heliostat.engines.slurm.journal import SubmissionJournal
from heliostat.errors import EngineUnavailable
from heliostat.models import AttemptId


def find_leftovers(
    journal: SubmissionJournal, client: SlurmClient, attempt_ids: Iterable[AttemptId]
) -> list[LeftoverAttempt]:
    """Without those that Slurm requeued: the database learns of these later."""
    entries = {attempt_id: entry for attempt_id in attempt_ids if (entry := journal.find(attempt_id))}
    submitted = {
        attempt_id: entry
        for attempt_id, entry in entries.items()
        if entry.uid is not None and entry.submitted_as_attempt is None
    }
    if not submitted:
        return []
    try:
        jobs = client.jobs(())
    except (EngineUnavailable, SlurmRefused):
        jobs = None
    found = []
    for attempt_id, entry in submitted.items():
        number = entry.slurm_job_id
        job = jobs.get(number) if jobs is not None and number is not None else None
        may_run = jobs is None or number is None or (job is not None and not job.is_terminal)
        started_at = job.started_at if job else None
        place = "being submitted" if number is None else f"Slurm job {number}"
        stop = None if number is None else f"scancel {number}"
        found.append(LeftoverAttempt(attempt_id, may_run, _user_name(entry.uid or 0), started_at, place, stop))
    return found


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
