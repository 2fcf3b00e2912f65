"""Jobs that wait for parent jobs or a begin time: wait reasons, and release when a parent ends. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from heliostat.models import ACTIVE_STATES, DependencyCondition, Job, JobId, JobState, WaitReason
from heliostat.models.environments import IMAGE_BUILD_JOB

_SHOWN = 3  # parents
_VAGUE_ENGINE_KINDS = ("reservation", "priority")  # "priority": the engine has only just received the job
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0


def explain_ineligible(job: Job, jobs: Mapping[JobId, Job], now: datetime) -> str | None:
    """Why a pending job is not in the queue yet; None: it is. `jobs` holds all jobs that have not ended."""
    if job.state is not JobState.PENDING:
        return None
    if job.parents_left:
        return _describe_parents(job, jobs, now)
    if job.begin_at is not None and job.begin_at > now:
        if job.retries:
            return f"is retried at {_clock(job.begin_at)} after {job.reason or 'its node was lost'}"
        return f"waits for its begin time, {_clock(job.begin_at)}"
    return None


def is_own_explanation_better(waiting: WaitReason | None) -> bool:
    """Whether our explanation says more than the one of the engine's own queue: it names begin times."""
    return waiting is None or waiting.kind in _VAGUE_ENGINE_KINDS


class DependencyGraph:
    """Dependencies between jobs in a simulated queue, where every job that ends is assumed to complete."""

    def __init__(self, jobs: Mapping[JobId, Job]) -> None:
        self._children: defaultdict[JobId, list[JobId]] = defaultdict(list)
        self._left: Counter[JobId] = Counter()
        for job in jobs.values():
            if job.parents_left:
                self._add(job, jobs)

    def release_children(self, parent: JobId, jobs: Mapping[JobId, Job], now: datetime) -> Iterable[Job]:
        """The children for which this was the last open parent, updated."""
        for child_id in self._children.pop(parent, ()):
            self._left[child_id] -= 1
            child = jobs.get(child_id)
            if child is not None and not self._left[child_id]:
                yield replace(child, parents_left=0, waits_since=now)

    def _add(self, job: Job, jobs: Mapping[JobId, Job]) -> None:
        for dependency in job.after:
            if dependency.parent_id not in jobs:
                continue
            self._left[job.id] += 1
            if dependency.condition is not DependencyCondition.FAILED:  # never met: simulated jobs do not fail
                self._children[dependency.parent_id].append(job.id)


def _describe_parents(job: Job, jobs: Mapping[JobId, Job], now: datetime) -> str:
    parents = [
        (jobs[dependency.parent_id], dependency.condition)
        for dependency in job.after
        if dependency.parent_id in jobs
    ]
    if not parents:
        return "its parent job has just ended" if job.id in jobs else "was just submitted"
    shown = [_describe_parent(parent, condition, now) for parent, condition in parents[:_SHOWN]]
    if len(parents) > len(shown):
        shown.append(f"{len(parents) - len(shown)} more")
    rest, last = shown[:-1], shown[-1]
    also = f", and for its begin time, {_clock(job.begin_at)}" if job.begin_at and job.begin_at > now else ""
    return "waits for " + (f"{', '.join(rest)} and {last}" if rest else last) + also


def _describe_parent(parent: Job, condition: DependencyCondition, now: datetime) -> str:
    if condition is DependencyCondition.BUILT:
        result = "image" if parent.kind == IMAGE_BUILD_JOB else "environment"
        return f"job {parent.id}, which builds its {result} ({parent.state})"
    if parent.state in ACTIVE_STATES and parent.started_at and parent.time_limit_seconds:
        left = parent.started_at + timedelta(seconds=parent.time_limit_seconds) - now
        if left > timedelta(0):
            return f"job {parent.id} ({parent.state}, at most {_length(left.total_seconds())} left)"
    return f"job {parent.id} ({parent.state})"


def _length(seconds: float) -> str:
    for size, unit in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(1, round(seconds / _MINUTE))} min"


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"
