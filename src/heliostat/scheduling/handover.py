"""What to hand to an engine that queues by itself: all but what only we know to keep back. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from heliostat.models import ACTIVE, AttemptId, Job, JobId, JobState


def to_hand_over(
    jobs: Iterable[Job],
    delayed: Collection[JobId] = (),
    now: datetime | None = None,
    *,
    ended: Collection[AttemptId] = (),
    limits_arrays: bool = False,
) -> list[Job]:
    """In the order they were submitted; of an array with a limit no more than may run at once. Who waits for a
    parent, or for its time to begin, is not among them.

    `ended` are attempts whose end is about to be recorded: the next of their array may follow at once.
    An engine that `limits_arrays` gets all of an array of which it has nothing yet: it keeps the limit itself.
    """
    waiting: list[Job] = []
    in_hand: Counter[int] = Counter()
    for job in jobs:
        if job.handed_over or job.state in ACTIVE:
            if job.attempt_id in ended:
                continue
            in_hand[job.array_id or 0] += 1
        elif job.state is JobState.PENDING and job.id not in delayed and _may_start(job, now):
            waiting.append(job)
    untouched = {job.array_id for job in waiting if limits_arrays and not in_hand[job.array_id or 0]}
    chosen: list[Job] = []
    for job in sorted(waiting, key=lambda job: job.id):
        is_limited = job.array_limit is not None and job.array_id not in untouched
        if is_limited and in_hand[job.array_id or 0] >= (job.array_limit or 0):
            continue
        in_hand[job.array_id or 0] += 1
        chosen.append(job)
    return chosen


def _may_start(job: Job, now: datetime | None) -> bool:
    return not job.parents_left and (now is None or job.may_start(now))
