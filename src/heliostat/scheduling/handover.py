"""What to hand to an engine that queues by itself: all but what only we know to keep back. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime

from heliostat.models import ACTIVE, Job, JobId, JobState


def to_hand_over(jobs: Iterable[Job], delayed: Collection[JobId] = (), now: datetime | None = None) -> list[Job]:
    """In the order they were submitted; of an array with a limit no more than may run at once. Who waits for a
    parent, or for its time to begin, is not among them."""
    waiting: list[Job] = []
    in_hand: Counter[int] = Counter()
    for job in jobs:
        if job.handed_over or job.state in ACTIVE:
            in_hand[job.array_id or 0] += 1
        elif job.state is JobState.PENDING and job.id not in delayed and _may_start(job, now):
            waiting.append(job)
    chosen: list[Job] = []
    for job in sorted(waiting, key=lambda job: job.id):
        if job.array_id is not None and job.array_limit is not None and in_hand[job.array_id] >= job.array_limit:
            continue
        in_hand[job.array_id or 0] += 1
        chosen.append(job)
    return chosen


def _may_start(job: Job, now: datetime | None) -> bool:
    return not job.parents_left and (now is None or job.may_start(now))
