"""What to hand to an engine that queues by itself: every job that may start, but for limits of arrays. Pure."""

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
    """In the order of submission; of an array with a limit no more than may run at once. A job that waits for
    others, or for its time to begin, stays in our queue until then.

    `ended` are attempts whose end is about to be recorded: the next of their array may follow at once.
    `whole_arrays`: the engine keeps limits of arrays itself, and gets all of an array of which it has nothing yet.
    """
    waiting: list[Job] = []
    in_hand: Counter[int] = Counter()
    for job in jobs:
        if job.dispatched or job.state in ACTIVE_STATES:
            in_hand[job.array_id or 0] += job.attempt_id not in ended
        elif job.state is JobState.PENDING and job.id not in delayed and job.is_eligible(now):
            waiting.append(job)
    waiting.sort(key=lambda job: job.id)
    return _within_limits(waiting, in_hand, whole_arrays=whole_arrays)


def _within_limits(waiting: Sequence[Job], in_hand: Counter[int], *, whole_arrays: bool) -> list[Job]:
    untouched = {job.array_id for job in waiting if whole_arrays and not in_hand[job.array_id or 0]}
    chosen: list[Job] = []
    for job in waiting:
        is_taken_whole = job.array_id in untouched and job.part is None  # which each goes alone
        is_limited = job.array_limit is not None and not is_taken_whole
        if is_limited and in_hand[job.array_id or 0] >= (job.array_limit or 0):
            continue
        in_hand[job.array_id or 0] += 1
        chosen.append(job)
    return chosen
