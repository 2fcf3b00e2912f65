"""The reason that blocks one pending job, checked in the same order as in a plan."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from heliostat.models import Job, NodeState, PlacementRequest
from heliostat.scheduling.availability import expected_ends
from heliostat.scheduling.explain.shortage import Shortage, format_needs
from heliostat.scheduling.feasibility import MissingRequirement, could_ever_run, find_missing_requirement
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.placement import placement_from_start
from heliostat.scheduling.planned_capacity import BookedCapacity, Capacity
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
_SHOWN_GROUPS = 2  # of nodes that are drained or down for the same reason
_SHORTER = "with a --time that ends before then it could start now"
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class BlockingReason:
    kind: str  # nodes, array, quota, resources, reservation, booking, priority
    message: str  # lower case, without a full stop; its subject is the job
    not_before: datetime | None = None  # the earliest possible start, if it is certain


class BlockingReasonFinder:
    """Finds reasons in the state of the cluster after all starts of a plan."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, plan: Plan, now: datetime) -> None:
        self._snapshot, self._policy, self._plan, self._now = snapshot, policy, plan, now.timestamp()
        self._windows = list_reservation_windows(snapshot, now)
        self._capacity = Capacity(snapshot)
        self._shared_use = dict(snapshot.shared_device_use)
        self._ends = expected_ends(snapshot.running, policy.assumed_limit_seconds, self._now)
        self._quotas = QuotaTracker(snapshot, policy, self._now)
        self._arrays = _running_per_array(snapshot, plan)
        self._known_nodes: dict[JobShape, BlockingReason | None] = {}  # many jobs have the same shape
        self._known_resources: dict[tuple[JobShape, str], BlockingReason | None] = {}
        for start in plan.starts:
            self._apply_start(start)

    def find(self, row: Array) -> BlockingReason:
        """The reason for one row of `PENDING_DTYPE`."""
        job = self._snapshot.jobs.get(int(row["job"]))
        if job is None:
            return BlockingReason("priority", "its state is changing")
        shape = self._snapshot.shapes[int(row["shape"])]
        return (
            _once(self._known_nodes, shape, lambda: self._nodes(shape))
            or self._array(job)
            or self._quota(job, float(row["gpus"]))
            or _once(self._known_resources, (shape, job.project), lambda: self._resources(job, shape))
            or self._reserved(job, shape, self._now + float(row["limit"]))
            or self._booking(job)
            or BlockingReason("priority", "waits for jobs with a higher priority")
        )

    def _apply_start(self, start: PlannedStart) -> None:
        """Allocate the same resources as the plan, in the same order."""
        job, shape = start.job, JobShape(start.job.resources, start.job.placement)
        until = self._now + (job.time_limit_seconds or self._policy.assumed_limit_seconds)
        self._capacity.allocate(job, shape, placement_from_start(start, self._snapshot.node_table), until)
        if shape.is_fractional:
            for uuid in start.devices:
                self._shared_use[uuid] = self._shared_use.get(uuid, 0.0) + job.resources.gpus
        self._quotas.add_started_job(
            job, count_occupied_gpus(job, self._snapshot.node_table, self._snapshot.accounts)
        )

    def _nodes(self, shape: JobShape) -> BlockingReason | None:
        nodes = self._snapshot.node_table.nodes
        if not nodes:
            return BlockingReason("nodes", "the cluster has no nodes")
        request = shape.resources, shape.placement, shape.data_class
        if not could_ever_run(nodes, *request):
            missing = find_missing_requirement(nodes, *request)
            return BlockingReason(
                "nodes", f"no node can run it: it needs {format_needs(shape)}{_describe_missing(missing, shape)}"
            )
        up = [node for node in nodes if node.state is NodeState.UP]
        if could_ever_run(up, *request):
            return None
        away = self._describe_unavailable(shape)
        if shape.placement.tasks > 1 and could_ever_run(up, shape.resources, _one_task(shape), shape.data_class):
            return BlockingReason("nodes", f"too few nodes that could run it are up: {away}")
        return BlockingReason("nodes", f"every node that could run it is drained or down: {away}")

    def _describe_unavailable(self, shape: JobShape) -> str:
        """The nodes that could run one of its tasks but are drained or down, and why; empty: none."""
        groups: dict[str, list[str]] = {}
        for node in self._snapshot.node_table.nodes:
            if node.state is not NodeState.UP and could_ever_run(
                [node], shape.resources, _one_task(shape), shape.data_class
            ):
                reason = f"{node.state} ({node.reason})" if node.reason else str(node.state)
                groups.setdefault(reason, []).append(node.name)
        shown = [
            f"{', '.join(names[:3])}{'…' if len(names) > 3 else ''} {_are(names)} {reason}"
            for reason, names in list(groups.items())[:_SHOWN_GROUPS]
        ]
        return ", ".join(shown)

    def _array(self, job: Job) -> BlockingReason | None:
        if job.array_limit is None or self._arrays.get(job.array_id or 0, 0) < job.array_limit:
            return None
        return BlockingReason("array", f"the limit of its array is reached: {job.array_limit} running at once")

    def _quota(self, job: Job, gpus: float) -> BlockingReason | None:
        violation = self._quotas.find_violation(job, gpus)
        if violation is None:
            return None
        if not (violation.until_next_month and self._is_used_up(job, violation)):
            return BlockingReason("quota", violation.message)
        resets_at = datetime.fromtimestamp(start_of_month(start_of_month(self._now) + _LONGEST_MONTH), UTC)
        return BlockingReason("quota", f"{violation.message}; the quota resets at {_clock(resets_at)}", resets_at)

    def _is_used_up(self, job: Job, violation: QuotaViolation) -> bool:
        """Whether the quota stays exceeded even if all running jobs ended now."""
        budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month
        if violation.quota_key != priority_class_quota_key(job):
            budget = find_quota(violation.quota_key, self._snapshot.accounts).gpu_hours_per_month
        return budget is not None and self._used_so_far(violation.quota_key) >= budget

    def _used_so_far(self, scope: QuotaKey) -> float:
        """GPU-hours of this month until now, with those of running jobs."""
        running, accounts = self._snapshot.running, self._snapshot.accounts
        seconds = self._now - np.maximum(running["started"], self._snapshot.month_start)
        hours = running["gpus"] * np.maximum(seconds, 0.0) / _HOUR
        used = self._snapshot.month_gpu_hours.get(scope, 0.0)
        for job_id, spent in zip(running["job"].tolist(), hours.tolist(), strict=True):
            job = self._snapshot.jobs.get(job_id)
            if job and scope in (*quota_keys(job.user, job.project, accounts), priority_class_quota_key(job)):
                used += spent
        return used

    def _resources(self, job: Job, shape: JobShape) -> BlockingReason | None:
        """Resources that only a reservation blocks count as free here: `_reserved` reports them."""
        self._capacity.bookings = []
        if self._capacity.find_placement(shape, job.project, np.inf) is not None:
            return None
        active = [
            window for window in self._windows if window.start <= self._now and window.blocks_project(job.project)
        ]
        self._capacity.bookings = [self._book_window(window) for window in active]
        whole_nodes = np.zeros(len(self._snapshot.node_table.nodes), bool)
        for window in active:
            whole_nodes[window.nodes] |= window.gpus_per_node is None
        shortage = Shortage(self._snapshot.node_table, self._capacity, self._shared_use, job.project, whole_nodes)
        eligible = self._snapshot.node_table.eligibility_of(shape).eligible_up_nodes
        reserved = [self._describe_window(window) for window in active if eligible[window.nodes].any()]
        away = self._describe_unavailable(shape)
        message = "; ".join([shortage.describe(shape), *reserved[:1], *([away] if away else [])])
        self._capacity.bookings = []
        return BlockingReason("resources", message)

    def _reserved(self, job: Job, shape: JobShape, end: float) -> BlockingReason | None:
        """A reservation that blocks the job on its own, or all of them together."""
        windows = [window for window in self._windows if window.blocks_project(job.project) and window.start < end]
        for group in ([window] for window in windows):
            if self._is_blocked_by(group, job, shape, end):
                return BlockingReason("reservation", self._describe_window(group[0]))
        if len(windows) > 1 and self._is_blocked_by(windows, job, shape, end):
            return BlockingReason(
                "reservation", "; ".join(self._describe_window(window) for window in windows[:2])
            )
        return None

    def _is_blocked_by(self, windows: list[ReservationWindow], job: Job, shape: JobShape, end: float) -> bool:
        self._capacity.bookings = [self._book_window(window) for window in windows]
        placement = self._capacity.find_placement(shape, job.project, end)
        self._capacity.bookings = []
        return placement is None

    def _book_window(self, window: ReservationWindow) -> BookedCapacity:
        return book_capacity_for_window(window, self._snapshot, self._capacity, self._ends, self._now)

    def _booking(self, job: Job) -> BlockingReason | None:
        others = [booked for booked in self._plan.booked_starts if booked.job_id != job.id]
        if not others:
            return None
        booked = others[0]
        nodes = ", ".join(booked.nodes[:3])
        verb, latest = _are(booked.nodes), _clock(booked.starts_at)
        message = f"{nodes} {verb} booked for job {booked.job_id}, which starts by {latest} at the latest"
        return BlockingReason("booking", f"{message}; {_SHORTER}")

    def _describe_window(self, window: ReservationWindow) -> str:
        names = [self._snapshot.node_table.nodes[node].name for node in window.nodes.tolist()]
        purpose = f"reserved for {f'project {window.project}' if window.project else 'maintenance'}"
        start, end = (datetime.fromtimestamp(time, UTC) for time in (window.start, window.end))
        from_time = f"from {_clock(start)} " if window.start > self._now else ""
        advice = f"; {_SHORTER}" if from_time else ""
        shown = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
        return f"{shown} {_are(names)} {purpose} {from_time}until {_clock(end)}{advice}"


def _once(
    cache: dict[Key, BlockingReason | None], key: Key, find: Callable[[], BlockingReason | None]
) -> BlockingReason | None:
    if key not in cache:
        cache[key] = find()
    return cache[key]


def _running_per_array(snapshot: Snapshot, plan: Plan) -> dict[int, int]:
    running = [snapshot.jobs.get(job_id) for job_id in set(snapshot.running["job"].tolist())]
    jobs = [job for job in running if job] + [start.job for start in plan.starts]
    counts: dict[int, int] = {}
    for job in jobs:
        if job.array_id is not None:
            counts[job.array_id] = counts.get(job.array_id, 0) + 1
    return counts


def _describe_missing(missing: MissingRequirement | None, shape: JobShape) -> str:
    """Why the nodes that are large enough do not count."""
    if missing is MissingRequirement.DATA_CLASS:
        return f", and no such node accepts data of class {shape.data_class}"
    if missing is MissingRequirement.LABELS:
        return f", and no such node has the label {' and '.join(shape.placement.labels)}"
    if missing is MissingRequirement.GPU_SHARING:
        return ", and such nodes allocate whole GPUs only"
    labels = f", label {', '.join(shape.placement.labels)}" if shape.placement.labels else ""
    return labels + (f", data class {shape.data_class}" if shape.data_class else "")


def _one_task(shape: JobShape) -> PlacementRequest:
    return replace(shape.placement, tasks=1)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
