"""What keeps one job from starting: looked up in the same order in which a plan finds out."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from heliostat.models import Job, NodeState, PlacementRequest
from heliostat.scheduling.availability import expected_ends
from heliostat.scheduling.capacity import BookedCapacity, Capacity
from heliostat.scheduling.explain.shortage import Shortage, format_needs
from heliostat.scheduling.feasibility import MissingRequirement, could_ever_run, find_missing_requirement
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.placement import placement_from_start
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import start_of_month
from heliostat.scheduling.quotas import (
    QuotaKey,
    QuotaTracker,
    QuotaViolation,
    count_occupied_gpus,
    find_quota,
    priority_class_quota_key,
    quota_keys,
)
from heliostat.scheduling.reservations import ReservationWindow, book_capacity_for_window, list_reservation_windows
from heliostat.scheduling.snapshot import Plan, PlannedStart, Snapshot

_LONGEST_MONTH = 31 * 86400.0
_HOUR = 3600.0
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BlockingReason:
    kind: str  # nodes, array, quota, room, reservation, kept, turn
    message: str
    not_before: datetime | None = None  # when it can start at the earliest, if that is sure


class BlockingReasonFinder:
    """The cluster after a plan has been carried out."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, made: Plan, now: datetime) -> None:
        self._snapshot, self._policy, self._made, self._now = snapshot, policy, made, now.timestamp()
        self._windows = list_reservation_windows(snapshot, now)
        self._rooms = Capacity(snapshot)
        self._parts = dict(snapshot.shared_device_use)
        self._ends = expected_ends(snapshot.running, policy.assumed_limit_seconds, self._now)
        self._quotas = QuotaTracker(snapshot, policy, self._now)
        self._arrays = _running_per_array(snapshot, made)
        self._known_nodes: dict[JobShape, BlockingReason | None] = {}  # many jobs ask for the same
        self._known_room: dict[tuple[JobShape, str], BlockingReason | None] = {}
        for start in made.starts:
            self._carry_out(start)

    def find(self, row: Array) -> BlockingReason:
        """Of a row of PENDING."""
        job = self._snapshot.jobs.get(int(row["job"]))
        if job is None:
            return BlockingReason("turn", "is about to change")
        shape = self._snapshot.shapes[int(row["shape"])]
        return (
            _once(self._known_nodes, shape, lambda: self._nodes(shape))
            or self._array(job)
            or self._quota(job, float(row["gpus"]))
            or _once(self._known_room, (shape, job.project), lambda: self._room(job, shape))
            or self._reserved(job, shape, self._now + float(row["limit"]))
            or self._kept(job)
            or BlockingReason("turn", "waits for its turn")
        )

    def _carry_out(self, start: PlannedStart) -> None:
        """The same room is handed out again, in the same order."""
        job, shape = start.job, JobShape(start.job.resources, start.job.placement)
        until = self._now + (job.time_limit_seconds or self._policy.assumed_limit_seconds)
        self._rooms.allocate(job, shape, placement_from_start(start, self._snapshot.node_table), until)
        if shape.is_fractional:
            for uuid in start.devices:
                self._parts[uuid] = self._parts.get(uuid, 0.0) + job.resources.gpus
        self._quotas.add_started_job(
            job, count_occupied_gpus(job, self._snapshot.node_table, self._snapshot.accounts)
        )

    def _nodes(self, shape: JobShape) -> BlockingReason | None:
        nodes = self._snapshot.node_table.nodes
        if not nodes:
            return BlockingReason("nodes", "there is no node")
        asked = shape.resources, shape.placement, shape.data_class
        if not could_ever_run(nodes, *asked):
            lack = find_missing_requirement(nodes, *asked)
            return BlockingReason(
                "nodes", f"no node can run it: it needs {format_needs(shape)}{_lack_words(lack, shape)}"
            )
        up = [node for node in nodes if node.state is NodeState.UP]
        if could_ever_run(up, *asked):
            return None
        if shape.placement.tasks > 1 and could_ever_run(up, shape.resources, _one_task(shape), shape.data_class):
            return BlockingReason(
                "nodes", "too few of the nodes that could run it are up; the others are drained or down"
            )
        return BlockingReason("nodes", "every node that could run it is drained or down")

    def _array(self, job: Job) -> BlockingReason | None:
        if job.array_limit is None or self._arrays.get(job.array_id or 0, 0) < job.array_limit:
            return None
        return BlockingReason("array", f"its array runs at most {job.array_limit} at once")

    def _quota(self, job: Job, gpus: float) -> BlockingReason | None:
        refusal = self._quotas.find_violation(job, gpus)
        if refusal is None:
            return None
        if not (refusal.until_next_month and self._is_used_up(job, refusal)):
            return BlockingReason("quota", refusal.message)
        begins = datetime.fromtimestamp(start_of_month(start_of_month(self._now) + _LONGEST_MONTH), UTC)
        return BlockingReason("quota", f"{refusal.message}; the next month begins at {_clock(begins)}", begins)

    def _is_used_up(self, job: Job, refusal: QuotaViolation) -> bool:
        """Even if all that runs ended now."""
        budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month
        if refusal.quota_key != priority_class_quota_key(job):
            budget = find_quota(refusal.quota_key, self._snapshot.accounts).gpu_hours_per_month
        return budget is not None and self._used_so_far(refusal.quota_key) >= budget

    def _used_so_far(self, scope: QuotaKey) -> float:
        """GPU-hours of this month, also of what runs, until now."""
        running, accounts = self._snapshot.running, self._snapshot.accounts
        seconds = self._now - np.maximum(running["started"], self._snapshot.month_start)
        hours = running["gpus"] * np.maximum(seconds, 0.0) / _HOUR
        used = self._snapshot.month_gpu_hours.get(scope, 0.0)
        for job_id, spent in zip(running["job"].tolist(), hours.tolist(), strict=True):
            job = self._snapshot.jobs.get(job_id)
            if job and scope in (*quota_keys(job.user, job.project, accounts), priority_class_quota_key(job)):
                used += spent
        return used

    def _room(self, job: Job, shape: JobShape) -> BlockingReason | None:
        """What is set aside for others at this moment counts as free as long as that alone is in the way."""
        self._rooms.bookings = []
        if self._rooms.find_placement(shape, job.project, np.inf) is not None:
            return None
        shut = [
            window for window in self._windows if window.start <= self._now and window.blocks_project(job.project)
        ]
        self._rooms.bookings = [self._keep(window) for window in shut]
        whole = np.zeros(len(self._snapshot.node_table.nodes), bool)
        for window in shut:
            whole[window.nodes] |= window.gpus_per_node is None
        shortage = Shortage(self._snapshot.node_table, self._rooms, self._parts, job.project, whole)
        useful = self._snapshot.node_table.eligibility_of(shape).eligible_up_nodes
        also = [self._window_words(window) for window in shut if useful[window.nodes].any()]
        words = "; ".join([shortage.describe(shape), *also[:1]])
        self._rooms.bookings = []
        return BlockingReason("room", words)

    def _reserved(self, job: Job, shape: JobShape, end: float) -> BlockingReason | None:
        """One reservation that is in the way, or all of them together."""
        windows = [window for window in self._windows if window.blocks_project(job.project) and window.start < end]
        for tried in ([window] for window in windows):
            if self._is_in_the_way(tried, job, shape, end):
                return BlockingReason("reservation", self._window_words(tried[0]))
        if len(windows) > 1 and self._is_in_the_way(windows, job, shape, end):
            return BlockingReason("reservation", "; ".join(self._window_words(window) for window in windows[:2]))
        return None

    def _is_in_the_way(self, windows: list[ReservationWindow], job: Job, shape: JobShape, end: float) -> bool:
        self._rooms.bookings = [self._keep(window) for window in windows]
        found = self._rooms.find_placement(shape, job.project, end)
        self._rooms.bookings = []
        return found is None

    def _keep(self, window: ReservationWindow) -> BookedCapacity:
        return book_capacity_for_window(window, self._snapshot, self._rooms, self._ends, self._now)

    def _kept(self, job: Job) -> BlockingReason | None:
        heads = [head for head in self._made.booked_starts if head.job_id != job.id]
        if not heads:
            return None
        head = heads[0]
        nodes = ", ".join(head.nodes[:3])
        latest = _clock(head.starts_at)
        words = f"the room on {nodes} is kept for job {head.job_id}, which starts by {latest} at the latest"
        return BlockingReason("kept", f"{words}; a job that ends before that could start now")

    def _window_words(self, window: ReservationWindow) -> str:
        names = [self._snapshot.node_table.nodes[node].name for node in window.nodes.tolist()]
        purpose = f"reserved for project {window.project}" if window.project else "kept free for maintenance"
        start, end = (datetime.fromtimestamp(time, UTC) for time in (window.start, window.end))
        begins = f"from {_clock(start)} " if window.start > self._now else ""
        advice = "; a job that ends before that could start now" if begins else ""
        shown = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
        return f"{shown} {_are(names)} {purpose} {begins}until {_clock(end)}{advice}"


def _once(
    known: dict[Key, BlockingReason | None], key: Key, find: Callable[[], BlockingReason | None]
) -> BlockingReason | None:
    if key not in known:
        known[key] = find()
    return known[key]


def _running_per_array(snapshot: Snapshot, made: Plan) -> dict[int, int]:
    running = [snapshot.jobs.get(job_id) for job_id in set(snapshot.running["job"].tolist())]
    jobs = [job for job in running if job] + [start.job for start in made.starts]
    counts: dict[int, int] = {}
    for job in jobs:
        if job.array_id is not None:
            counts[job.array_id] = counts.get(job.array_id, 0) + 1
    return counts


def _lack_words(lack: MissingRequirement | None, shape: JobShape) -> str:
    """What keeps it from the nodes that are large enough."""
    if lack is MissingRequirement.DATA_CLASS:
        return f", which no node has that takes data of class {shape.data_class}"
    if lack is MissingRequirement.LABELS:
        return f", which no node has with the label {' and '.join(shape.placement.labels)}"
    if lack is MissingRequirement.GPU_SHARING:
        return ", and the nodes that have it give out whole GPUs only"
    labels = f", label {', '.join(shape.placement.labels)}" if shape.placement.labels else ""
    return labels + (f", data class {shape.data_class}" if shape.data_class else "")


def _one_task(shape: JobShape) -> PlacementRequest:
    return replace(shape.placement, tasks=1)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
