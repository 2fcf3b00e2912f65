"""Wait explanations for pending jobs, from a snapshot and the plan made from it."""

from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from heliostat.models import Job, JobId, WaitReason
from heliostat.models.amounts import format_count
from heliostat.scheduling.explain.blocking_reason import BlockingReason, BlockingReasonFinder
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.planned_capacity import Capacity
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_order import project_share_ratios, sort_pending
from heliostat.scheduling.snapshot import BookedStart, Plan, Snapshot

_HIGH_SHARE_RATIO = 1.1  # from here on the sentence mentions the project's usage
_SHOWN_AHEAD = 10
_MAX_EXAMINED = 100  # jobs that differ in shape, account or array


@dataclass(frozen=True, slots=True)
class WaitExplanation:
    """Why one pending job waits, and its place in the queue."""

    job_id: JobId
    sentence: str
    blocked_by: str  # the kind of a BlockingReason, or of a WaitReason from the engine's own queue
    position: int | None  # 1: next; None: held in the engine's own queue
    pending: int
    ahead_projects: int
    first_ahead: tuple[JobId, ...]
    share_used: float  # recent usage of its project; 1.0: exactly its share
    starts_by: datetime | None = None  # latest start of a job with a booking, if no job exceeds its time limit
    not_before: datetime | None = None  # start of the next month, if the monthly quota is used up


def explain_engine_wait(job_id: JobId, waiting: WaitReason) -> WaitExplanation:
    """For a job in the engine's own queue, which has no information about our projects and shares."""
    ahead = (waiting.position or 1) - 1
    parts = [f"{format_count(ahead, 'job')} {'is' if ahead == 1 else 'are'} ahead"] if ahead else []
    return WaitExplanation(
        job_id=job_id,
        sentence="; ".join([waiting.reason, *parts]),
        blocked_by=waiting.kind,
        position=waiting.position,
        pending=waiting.queue_length or 0,
        ahead_projects=0,
        first_ahead=(),
        share_used=0.0,
    )


class WaitExplainer:
    """Explains the pending jobs of one snapshot; shared parts are computed once."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, plan: Plan, now: datetime) -> None:
        self._snapshot, self._policy, self._plan, self._now = snapshot, policy, plan, now
        self._started = {start.job.id for start in plan.starts}

    def short_reason(self, job_id: JobId) -> str | None:
        """The blocking reason alone; None: the job is not pending in this snapshot."""
        if job_id not in self._snapshot.jobs:  # newer than the snapshot: saves building the indexes below
            return None
        row = self._rows.get(job_id)
        return None if row is None else self._reasons.find(self._snapshot.pending[row]).message

    def explain(self, job_id: JobId) -> WaitExplanation | None:
        """None: the job is not pending in this snapshot."""
        row = self._rows.get(job_id)
        job = self._snapshot.jobs.get(job_id)
        if row is None or job is None:
            return None
        reason, ahead, booked = (
            self._reasons.find(self._snapshot.pending[row]),
            self._ahead(row),
            self._booked_starts.get(job_id),
        )
        projects = {self._snapshot.share_tree.leaves[leaf][0] for leaf in set(ahead["leaf"].tolist())}
        share = self.project_share_ratio(job.project)
        return WaitExplanation(
            job_id=job_id,
            sentence=_sentence(len(ahead), len(projects), job, share, reason),
            blocked_by=reason.kind,
            position=len(ahead) + 1,
            pending=len(self._in_order),
            ahead_projects=len(projects),
            first_ahead=tuple(ahead["job"][:_SHOWN_AHEAD].tolist()),
            share_used=round(share, 3),
            starts_by=booked.starts_at if booked else None,
            not_before=reason.not_before,
        )

    def has_unexplained_wait(self, since: datetime) -> bool:
        """Whether a job that has waited since then should run: the plan starts it, or nothing blocks it."""
        pending = self._snapshot.pending
        waiting = pending[pending["waiting"] <= since.timestamp()]
        if self._started.intersection(waiting["job"].tolist()):
            return True
        may_fit = Capacity(self._snapshot).may_fit(self._snapshot.shapes)
        similar = {(row["shape"], row["leaf"], row["array"]): row for row in waiting[may_fit[waiting["shape"]]]}
        return any(self._reasons.find(row).kind == "priority" for row in list(similar.values())[:_MAX_EXAMINED])

    def project_share_ratio(self, project: str) -> float:
        """Recent usage of a project, as a multiple of its share."""
        return self._ratios.get(project, 0.0)

    def queue_position(self, job_id: JobId) -> int | None:
        """1: first in the queue."""
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
    def _booked_starts(self) -> dict[JobId, BookedStart]:
        return {booked.job_id: booked for booked in self._plan.booked_starts}

    @cached_property
    def _ratios(self) -> dict[str, float]:
        return project_share_ratios(self._snapshot, self._policy)

    @cached_property
    def _reasons(self) -> BlockingReasonFinder:
        return BlockingReasonFinder(self._snapshot, self._policy, self._plan, self._now)


def _sentence(ahead: int, projects: int, job: Job, share: float, reason: BlockingReason) -> str:
    parts = [reason.message]
    if ahead:
        verb = "is" if ahead == 1 else "are"
        parts.append(f"{format_count(ahead, 'job')} of {format_count(projects, 'project')} {verb} ahead")
    if share >= _HIGH_SHARE_RATIO:
        parts.append(f"project {job.project} has used {share:.1f}\N{MULTIPLICATION SIGN} its share recently")
    return "; ".join(parts)
