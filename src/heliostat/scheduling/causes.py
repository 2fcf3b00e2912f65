"""What keeps one job from starting: looked up in the same order in which a plan finds out."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TypeVar

import numpy as np

from heliostat.models import Job, NodeState, Placement
from heliostat.scheduling.board import month_start
from heliostat.scheduling.columns import Array
from heliostat.scheduling.fits import fit_of
from heliostat.scheduling.fitting import Lack, could_ever_run, what_is_lacking
from heliostat.scheduling.horizon import ends_of
from heliostat.scheduling.policy import Policy
from heliostat.scheduling.quotas import Quotas, Refusal, Scope, class_scope, gpus_kept, quota_of, scopes_of
from heliostat.scheduling.reservations import Window, keep_for_window, windows_of
from heliostat.scheduling.rooms import Keep, Rooms
from heliostat.scheduling.shapes import Shape
from heliostat.scheduling.shortage import Shortage, needs_in_words
from heliostat.scheduling.snapshot import Plan, Snapshot, Start

_LONGEST_MONTH = 31 * 86400.0
_HOUR = 3600.0
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Cause:
    kind: str  # nodes, array, quota, room, reservation, kept, turn
    words: str
    not_before: datetime | None = None  # when it can start at the earliest, if that is sure


class Causes:
    """The cluster after a plan has been carried out."""

    def __init__(self, snapshot: Snapshot, policy: Policy, made: Plan, now: datetime) -> None:
        self._snapshot, self._policy, self._made, self._now = snapshot, policy, made, now.timestamp()
        self._windows = windows_of(snapshot, now)
        self._rooms = Rooms(snapshot)
        self._parts = dict(snapshot.parts)
        self._ends = ends_of(snapshot.running, policy.assumed_limit_seconds, self._now)
        self._quotas = Quotas(snapshot, policy, self._now)
        self._arrays = _running_per_array(snapshot, made)
        self._known_nodes: dict[Shape, Cause | None] = {}  # many jobs ask for the same
        self._known_room: dict[tuple[Shape, str], Cause | None] = {}
        for start in made.starts:
            self._carry_out(start)

    def of(self, row: Array) -> Cause:
        """Of a row of PENDING."""
        job = self._snapshot.jobs.get(int(row["job"]))
        if job is None:
            return Cause("turn", "is about to change")
        shape = self._snapshot.shapes[int(row["shape"])]
        return (
            _once(self._known_nodes, shape, lambda: self._nodes(shape))
            or self._array(job)
            or self._quota(job, float(row["gpus"]))
            or _once(self._known_room, (shape, job.project), lambda: self._room(job, shape))
            or self._reserved(job, shape, self._now + float(row["limit"]))
            or self._kept(job)
            or Cause("turn", "waits for its turn")
        )

    def _carry_out(self, start: Start) -> None:
        """The same room is handed out again, in the same order."""
        job, shape = start.job, Shape(start.job.resources, start.job.placement)
        until = self._now + (job.time_limit_seconds or self._policy.assumed_limit_seconds)
        self._rooms.take(job, shape, fit_of(start, self._snapshot.machines), until)
        if shape.is_part:
            for uuid in start.devices:
                self._parts[uuid] = self._parts.get(uuid, 0.0) + job.resources.gpus
        self._quotas.count(job, gpus_kept(job, self._snapshot.machines, self._snapshot.accounts))

    def _nodes(self, shape: Shape) -> Cause | None:
        nodes = self._snapshot.machines.nodes
        if not nodes:
            return Cause("nodes", "there is no node")
        asked = shape.resources, shape.placement, shape.data_class
        if not could_ever_run(nodes, *asked):
            lack = what_is_lacking(nodes, *asked)
            return Cause(
                "nodes", f"no node can run it: it needs {needs_in_words(shape)}{_lack_words(lack, shape)}"
            )
        up = [node for node in nodes if node.state is NodeState.UP]
        if could_ever_run(up, *asked):
            return None
        if shape.placement.tasks > 1 and could_ever_run(up, shape.resources, _one_task(shape), shape.data_class):
            return Cause("nodes", "too few of the nodes that could run it are up; the others are drained or down")
        return Cause("nodes", "every node that could run it is drained or down")

    def _array(self, job: Job) -> Cause | None:
        if job.array_limit is None or self._arrays.get(job.array_id or 0, 0) < job.array_limit:
            return None
        return Cause("array", f"its array runs at most {job.array_limit} at once")

    def _quota(self, job: Job, gpus: float) -> Cause | None:
        refusal = self._quotas.refuse(job, gpus)
        if refusal is None:
            return None
        if not (refusal.until_next_month and self._is_used_up(job, refusal)):
            return Cause("quota", refusal.words)
        begins = datetime.fromtimestamp(month_start(month_start(self._now) + _LONGEST_MONTH), UTC)
        return Cause("quota", f"{refusal.words}; the next month begins at {_clock(begins)}", begins)

    def _is_used_up(self, job: Job, refusal: Refusal) -> bool:
        """Even if all that runs ended now."""
        budget = self._policy.class_of(job.priority_class).gpu_hours_per_month
        if refusal.scope != class_scope(job):
            budget = quota_of(refusal.scope, self._snapshot.accounts).gpu_hours_per_month
        return budget is not None and self._used_so_far(refusal.scope) >= budget

    def _used_so_far(self, scope: Scope) -> float:
        """GPU-hours of this month, also of what runs, until now."""
        running, accounts = self._snapshot.running, self._snapshot.accounts
        seconds = self._now - np.maximum(running["started"], self._snapshot.month_began)
        hours = running["gpus"] * np.maximum(seconds, 0.0) / _HOUR
        used = self._snapshot.month.get(scope, 0.0)
        for job_id, spent in zip(running["job"].tolist(), hours.tolist(), strict=True):
            job = self._snapshot.jobs.get(job_id)
            if job and scope in (*scopes_of(job.user, job.project, accounts), class_scope(job)):
                used += spent
        return used

    def _room(self, job: Job, shape: Shape) -> Cause | None:
        """What is set aside for others at this moment counts as free as long as that alone is in the way."""
        self._rooms.keeps = []
        if self._rooms.find(shape, job.project, np.inf) is not None:
            return None
        shut = [window for window in self._windows if window.start <= self._now and window.concerns(job.project)]
        self._rooms.keeps = [self._keep(window) for window in shut]
        whole = np.zeros(len(self._snapshot.machines.nodes), bool)
        for window in shut:
            whole[window.nodes] |= window.gpus_per_node is None
        shortage = Shortage(self._snapshot.machines, self._rooms, self._parts, job.project, whole)
        useful = self._snapshot.machines.suitable(shape).open_nodes
        also = [self._window_words(window) for window in shut if useful[window.nodes].any()]
        words = "; ".join([shortage.words(shape), *also[:1]])
        self._rooms.keeps = []
        return Cause("room", words)

    def _reserved(self, job: Job, shape: Shape, end: float) -> Cause | None:
        """One reservation that is in the way, or all of them together."""
        windows = [window for window in self._windows if window.concerns(job.project) and window.start < end]
        for tried in ([window] for window in windows):
            if self._is_in_the_way(tried, job, shape, end):
                return Cause("reservation", self._window_words(tried[0]))
        if len(windows) > 1 and self._is_in_the_way(windows, job, shape, end):
            return Cause("reservation", "; ".join(self._window_words(window) for window in windows[:2]))
        return None

    def _is_in_the_way(self, windows: list[Window], job: Job, shape: Shape, end: float) -> bool:
        self._rooms.keeps = [self._keep(window) for window in windows]
        found = self._rooms.find(shape, job.project, end)
        self._rooms.keeps = []
        return found is None

    def _keep(self, window: Window) -> Keep:
        return keep_for_window(window, self._snapshot, self._rooms, self._ends, self._now)

    def _kept(self, job: Job) -> Cause | None:
        heads = [head for head in self._made.heads if head.job != job.id]
        if not heads:
            return None
        head = heads[0]
        nodes = ", ".join(head.nodes[:3])
        words = f"the room on {nodes} is kept for job {head.job}, which starts by {_clock(head.at)} at the latest"
        return Cause("kept", f"{words}; a job that ends before that could start now")

    def _window_words(self, window: Window) -> str:
        names = [self._snapshot.machines.nodes[node].name for node in window.nodes.tolist()]
        purpose = f"reserved for project {window.project}" if window.project else "kept free for maintenance"
        start, end = (datetime.fromtimestamp(time, UTC) for time in (window.start, window.end))
        begins = f"from {_clock(start)} " if window.start > self._now else ""
        advice = "; a job that ends before that could start now" if begins else ""
        shown = ", ".join(names[:3]) + ("…" if len(names) > 3 else "")
        return f"{shown} {_are(names)} {purpose} {begins}until {_clock(end)}{advice}"


def _once(known: dict[Key, Cause | None], key: Key, find: Callable[[], Cause | None]) -> Cause | None:
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


def _lack_words(lack: Lack | None, shape: Shape) -> str:
    """What keeps it from the nodes that are large enough."""
    if lack is Lack.DATA_CLASS:
        return f", which no node has that takes data of class {shape.data_class}"
    if lack is Lack.LABELS:
        return f", which no node has with the label {' and '.join(shape.placement.labels)}"
    if lack is Lack.SPLITTING:
        return ", and the nodes that have it give out whole GPUs only"
    labels = f", label {', '.join(shape.placement.labels)}" if shape.placement.labels else ""
    return labels + (f", data class {shape.data_class}" if shape.data_class else "")


def _one_task(shape: Shape) -> Placement:
    return replace(shape.placement, tasks=1)


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
