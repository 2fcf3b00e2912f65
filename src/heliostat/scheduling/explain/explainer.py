"""Why a job waits, in words a newcomer understands. Works on a snapshot and the plan that was made from it."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from heliostat.models import Job, JobId, WaitReason
from heliostat.scheduling.explain.blocking_reason import BlockingReason, BlockingReasonFinder
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_order import project_share_ratios, sort_pending
from heliostat.scheduling.snapshot import BookedStart, Plan, Snapshot

_MUCH = 1.1  # times its share: from here on it is worth a word
_SHOWN_AHEAD = 10


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """All that can be said about one waiting job."""

    job_id: JobId
    sentence: str
    blocked_by: str  # room, kept, reservation, quota, array, nodes, turn; or as an engine's own queue says
    position: int | None  # 1: next; None: held in the engine's own queue
    pending: int
    ahead_projects: int
    first_ahead: tuple[JobId, ...]
    share_used: float  # by its project, lately: 1.0 is just its share
    starts_by: datetime | None = None  # for one that has room booked, if limits are honest
    not_before: datetime | None = None  # for one that has to wait for the next month


def explain_engine_wait(job_id: JobId, waiting: WaitReason) -> WaitExplanation:
    """Of one that waits in its engine's own queue, where nobody knows shares and projects of ours."""
    ahead = (waiting.position or 1) - 1
    parts = [f"{_count(ahead, 'job')} {'is' if ahead == 1 else 'are'} ahead"] if ahead else []
    return WaitExplanation(
        job_id=job_id,
        sentence="; ".join([*parts, waiting.reason]),
        blocked_by=waiting.kind,
        position=waiting.position,
        pending=waiting.queue_length or 0,
        ahead_projects=0,
        first_ahead=(),
        share_used=0.0,
    )


class WaitExplainer:
    """Explains the jobs of one snapshot; what many explanations need is worked out once."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, made: Plan, now: datetime) -> None:
        self._snapshot, self._policy, self._made, self._now = snapshot, policy, made, now
        self._started = {start.job.id for start in made.starts}

    def short_reason(self, job_id: JobId) -> str | None:
        """In short; None: it does not wait in this snapshot."""
        if job_id not in self._snapshot.jobs:  # it has just come: nothing need be worked out to say so
            return None
        row = self._rows.get(job_id)
        return None if row is None else self._causes.find(self._snapshot.pending[row]).message

    def explain(self, job_id: JobId) -> WaitExplanation | None:
        """None: it does not wait in this snapshot."""
        row = self._rows.get(job_id)
        job = self._snapshot.jobs.get(job_id)
        if row is None or job is None:
            return None
        cause, ahead, head = (
            self._causes.find(self._snapshot.pending[row]),
            self._ahead(row),
            self._heads.get(job_id),
        )
        projects = {self._snapshot.share_tree.leaves[leaf][0] for leaf in set(ahead["leaf"].tolist())}
        share = self.project_share_ratio(job.project)
        return WaitExplanation(
            job_id=job_id,
            sentence=_sentence(len(ahead), len(projects), job, share, cause),
            blocked_by=cause.kind,
            position=len(ahead) + 1,
            pending=len(self._in_order),
            ahead_projects=len(projects),
            first_ahead=tuple(ahead["job"][:_SHOWN_AHEAD].tolist()),
            share_used=round(share, 3),
            starts_by=head.starts_at if head else None,
            not_before=cause.not_before,
        )

    def project_share_ratio(self, project: str) -> float:
        """How many times its share a project has had lately."""
        return self._ratios.get(project, 0.0)

    def queue_position(self, job_id: JobId) -> int | None:
        """1: the first of those that wait."""
        row = self._rows.get(job_id)
        return None if row is None else self._positions[row] + 1

    def _ahead(self, row: int) -> Array:
        return self._snapshot.pending[self._in_order[: self._positions[row]]]

    @cached_property
    def _rows(self) -> dict[JobId, int]:
        numbers = enumerate(self._snapshot.pending["job"].tolist())
        return {job_id: row for row, job_id in numbers if job_id not in self._started}

    @cached_property
    def _in_order(self) -> list[int]:
        waiting = set(self._rows.values())
        order = sort_pending(self._snapshot, self._policy, self._now.timestamp())
        return [row for row in order.tolist() if row in waiting]

    @cached_property
    def _positions(self) -> dict[int, int]:
        return {row: position for position, row in enumerate(self._in_order)}

    @cached_property
    def _heads(self) -> dict[JobId, BookedStart]:
        return {head.job_id: head for head in self._made.booked_starts}

    @cached_property
    def _ratios(self) -> dict[str, float]:
        return project_share_ratios(self._snapshot, self._policy)

    @cached_property
    def _causes(self) -> BlockingReasonFinder:
        return BlockingReasonFinder(self._snapshot, self._policy, self._made, self._now)


def _sentence(ahead: int, projects: int, job: Job, share: float, cause: BlockingReason) -> str:
    parts = []
    if ahead:
        parts.append(
            f"{_count(ahead, 'job')} of {_count(projects, 'project')} {'is' if ahead == 1 else 'are'} ahead"
        )
    if share >= _MUCH:
        parts.append(f"project {job.project} has used {share:.1f}\N{MULTIPLICATION SIGN} its share lately")
    return "; ".join([*parts, cause.message])


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
