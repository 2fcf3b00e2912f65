"""Dispatch to engines with their own queue: every eligible job within the limits of its array. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime

from heliostat.models import ACTIVE_STATES, AttemptId, Job, JobId, JobState


def select_jobs_to_dispatch(
    jobs: Iterable[Job],
    now: datetime,
    *,
    delayed: Collection[JobId] = (),
    ended: Collection[AttemptId] = (),
    whole_arrays: bool = False,
) -> list[Job]:
    """In order of submission; from an array with a limit, no more jobs than may run at once. Jobs that wait for
    other jobs or for their begin time stay in our queue.

    `ended`: attempts whose end is about to be recorded, so that the next job of their array may follow at once.
    `whole_arrays`: the engine enforces array limits itself and receives a new array as a whole.
    """
    waiting: list[Job] = []
    in_engine: Counter[int] = Counter()
    for job in jobs:
        if job.dispatched or job.state in ACTIVE_STATES:
            in_engine[job.array_id or 0] += job.attempt_id not in ended
        elif job.state is JobState.PENDING and job.id not in delayed and job.is_eligible(now):
            waiting.append(job)
    waiting.sort(key=lambda job: job.id)
    return _within_limits(waiting, in_engine, whole_arrays=whole_arrays)


def _within_limits(waiting: Sequence[Job], in_engine: Counter[int], *, whole_arrays: bool) -> list[Job]:
    whole_arrays_to_send = {job.array_id for job in waiting if whole_arrays and not in_engine[job.array_id or 0]}
    chosen: list[Job] = []
    for job in waiting:
        is_sent_whole = job.array_id in whole_arrays_to_send and job.part is None  # parts are submitted one by one
        is_limited = job.array_limit is not None and not is_sent_whole
        if is_limited and in_engine[job.array_id or 0] >= (job.array_limit or 0):
            continue
        in_engine[job.array_id or 0] += 1
        chosen.append(job)
    return chosen
