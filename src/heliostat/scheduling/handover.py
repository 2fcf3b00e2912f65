"""What to hand to an engine that queues by itself: all but what only we know to keep back. Pure."""

from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from heliostat.models import ACTIVE, AttemptId, Job, JobId, JobState, Rule
from heliostat.models.environments import BUILDS

MOST_PARENTS = 100  # that an engine is told of one job; who waits for more is kept back until they are over


@dataclass(frozen=True, slots=True)
class Takes:
    """What else an engine that queues by itself takes at once."""

    whole_arrays: bool = False  # and lets no more of them run than their limit
    children: bool = False  # who wait for others it has, or for a time, and starts them by itself


def to_hand_over(
    jobs: Iterable[Job],
    delayed: Collection[JobId] = (),
    now: datetime | None = None,
    *,
    ended: Collection[AttemptId] = (),
    takes: Takes | None = None,
) -> list[Job]:
    """In the order they were submitted; of an array with a limit no more than may run at once. Who waits for a
    parent, or for its time to begin, is not among them, unless the engine takes these: then those are who
    `may_follow`, each after its parents.

    `ended` are attempts whose end is about to be recorded: the next of their array may follow at once.
    An engine that takes whole arrays gets all of one of which it has nothing yet: it keeps the limit itself.
    """
    takes = takes or Takes()
    waiting: list[Job] = []
    children: list[Job] = []
    in_hand: Counter[int] = Counter()
    known: dict[JobId, Job] = {}
    for job in jobs:
        known[job.id] = job
        if job.handed_over or job.state in ACTIVE:
            if job.attempt_id in ended:
                continue
            in_hand[job.array_id or 0] += 1
        elif job.state is not JobState.PENDING or job.id in delayed:
            continue
        elif job.parents_left:
            children.append(job)
        elif takes.children or now is None or job.may_start(now):
            waiting.append(job)
    waiting.sort(key=lambda job: job.id)
    if takes.children and children:
        waiting += _followers(children, waiting, known)
    return _within_limits(waiting, in_hand, whole_arrays=takes.whole_arrays)


def may_follow(parent: Job, rule: Rule) -> bool:
    """Whether an engine may be told of a child of this parent, which is not over, and start it by itself.

    The engine knows of one execution only, we know of the job. One that completes is never tried again, so for
    `ok` that is the same. For the other rules it is if the job runs and no end of it leads to another try. While
    it is being stopped nobody can say what its end will mean; and what a build has made is put into its place by
    us, after its end.
    """
    if parent.stop_requested is not None or parent.kind in BUILDS or rule is Rule.BUILT:
        return False
    if rule is Rule.OK:
        return parent.handed_over or parent.state in ACTIVE
    return parent.state is JobState.RUNNING and parent.retries >= parent.max_retries


def parents_to_name(child: Job, jobs: Mapping[JobId, Job]) -> tuple[AttemptId, ...] | None:
    """Those the engine is told that it waits for, given all that are not over; None: it is to be kept back."""
    living = [(jobs[one.parent], one.rule) for one in child.after if one.parent in jobs]
    if len(living) > MOST_PARENTS or not all(may_follow(parent, rule) for parent, rule in living):
        return None
    return tuple(dict.fromkeys(parent.attempt_id for parent, _ in living))


def _followers(children: Sequence[Job], coming: Iterable[Job], known: Mapping[JobId, Job]) -> list[Job]:
    """Those whose parents are all with the engine or on their way there, after these. However long the chain."""
    on_the_way = {job.id for job in coming}
    by_parent: defaultdict[JobId, list[Job]] = defaultdict(list)
    for child in children:
        for one in child.after:
            by_parent[one.parent].append(child)
    found: list[Job] = []
    to_look_at = deque(sorted(children, key=lambda job: job.id))
    while to_look_at:
        child = to_look_at.popleft()
        if child.id in on_the_way or not _comes(child, on_the_way, known):
            continue
        on_the_way.add(child.id)
        found.append(child)
        to_look_at.extend(by_parent[child.id])
    return found


def _comes(child: Job, on_the_way: Collection[JobId], known: Mapping[JobId, Job]) -> bool:
    living = [one for one in child.after if one.parent in known]
    return len(living) <= MOST_PARENTS and all(
        may_follow(known[one.parent], one.rule)
        or (one.parent in on_the_way and _will_do(known[one.parent], one.rule))
        for one in living
    )


def _will_do(parent: Job, rule: Rule) -> bool:
    """Once it is handed over."""
    return may_follow(replace(parent, handed_over=True), rule)


def _within_limits(waiting: Sequence[Job], in_hand: Counter[int], *, whole_arrays: bool) -> list[Job]:
    untouched = {job.array_id for job in waiting if whole_arrays and not in_hand[job.array_id or 0]}
    chosen: list[Job] = []
    for job in waiting:
        is_limited = job.array_limit is not None and job.array_id not in untouched
        if is_limited and in_hand[job.array_id or 0] >= (job.array_limit or 0):
            continue
        in_hand[job.array_id or 0] += 1
        chosen.append(job)
    return chosen
