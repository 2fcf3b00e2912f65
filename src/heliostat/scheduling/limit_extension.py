"""Which bookings a longer time limit of a running job would delay. Pure."""

from dataclasses import replace
from datetime import datetime, timedelta

from heliostat.models import JobId
from heliostat.scheduling.plan import plan
from heliostat.scheduling.queue_state import QueueState
from heliostat.scheduling.snapshot import BookedStart

_TOLERANCE = timedelta(minutes=1)


def find_delayed_bookings(
    queue_state: QueueState, job_id: JobId, limit_seconds: int, now: datetime
) -> list[BookedStart]:
    """Kept bookings of other users that start later if this job may run for `limit_seconds`."""
    job = queue_state.jobs.get(job_id)
    if job is None:
        return []
    before, extended = _booked_starts(queue_state, now), queue_state.copy()
    extended.update_job(replace(job, time_limit_seconds=limit_seconds), now)
    after = {booked.job_id: booked.starts_at for booked in _booked_starts(extended, now)}
    return [
        booked
        for booked in before
        if (waiting := queue_state.jobs[booked.job_id]).is_booked
        and waiting.user != job.user
        and (booked.job_id not in after or after[booked.job_id] > booked.starts_at + _TOLERANCE)
    ]


def _booked_starts(queue_state: QueueState, now: datetime) -> tuple[BookedStart, ...]:
    return plan(queue_state.live_snapshot(now), queue_state.policy, now).booked_starts
