"""What keeps one job from starting: looked up in the same order in which a plan finds out."""

from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np

from heliostat.models import Job
from heliostat.scheduling.columns import Array
from heliostat.scheduling.fitting import (
    could_ever_run,
    cpus_in_words,
    gpus_in_words,
    memory_in_words,
    resources_in_words,
)
from heliostat.scheduling.free import capacity_for
from heliostat.scheduling.horizon import ends_of
from heliostat.scheduling.policy import Policy
from heliostat.scheduling.quotas import Quotas
from heliostat.scheduling.rooms import Rooms, fit_of, needs_of
from heliostat.scheduling.shapes import Shape
from heliostat.scheduling.snapshot import Plan, Snapshot, Start
from heliostat.scheduling.windows import Window, keep_for_window, windows_of


@dataclass(frozen=True, slots=True)
class Cause:
    kind: str  # nodes, array, quota, room, reservation, kept, turn
    words: str


class Causes:
    """The cluster after a plan has been carried out."""

    def __init__(self, snapshot: Snapshot, policy: Policy, made: Plan, now: datetime) -> None:
        self._snapshot, self._made, self._now = snapshot, made, now.timestamp()
        self._windows = windows_of(snapshot, now)
        self._rooms = Rooms(snapshot)
        self._ends = ends_of(snapshot.running, policy.assumed_limit_seconds, self._now)
        self._quotas = Quotas(snapshot, policy, self._now)
        self._arrays = _running_per_array(snapshot, made)
        for start in made.starts:
            self._carry_out(start)

    def of(self, row: Array) -> Cause:
        """Of a row of PENDING."""
        job = self._snapshot.jobs.get(int(row["job"]))
        if job is None:
            return Cause("turn", "is about to change")
        shape = self._snapshot.shapes[int(row["shape"])]
        return (
            self._nodes(shape)
            or self._array(job)
            or self._quota(job, float(row["gpus"]))
            or self._room(shape)
            or self._kept(job, shape, self._now + float(row["limit"]))
            or Cause("turn", "waits for its turn")
        )

    def _carry_out(self, start: Start) -> None:
        shape = Shape(start.job.resources, start.job.placement)
        rows = needs_of(shape, fit_of(start, self._snapshot.machines), self._snapshot.machines)
        self._rooms.free.add(rows["node"], rows, -1)
        self._quotas.count(start.job, start.job.resources.gpus * start.job.placement.tasks)

    def _nodes(self, shape: Shape) -> Cause | None:
        machines = self._snapshot.machines
        if not machines.nodes:
            return Cause("nodes", "there is no node")
        if not could_ever_run(machines.nodes, shape.resources, shape.placement, shape.data_class):
            return Cause("nodes", f"no node can run it: it needs {_needs(shape)}{_conditions(shape)}")
        if not machines.suitable(shape).open_nodes.any():
            return Cause("nodes", "every node that could run it is drained or down")
        return None

    def _array(self, job: Job) -> Cause | None:
        if job.array_limit is None or self._arrays.get(job.array_id or 0, 0) < job.array_limit:
            return None
        return Cause("array", f"its array runs at most {job.array_limit} at once")

    def _quota(self, job: Job, gpus: float) -> Cause | None:
        refusal = self._quotas.refuse(job, gpus)
        return Cause("quota", refusal.words) if refusal else None

    def _room(self, shape: Shape) -> Cause | None:
        suitable = self._snapshot.machines.suitable(shape)
        best = 0
        for kind in suitable.kinds:
            capacity = np.where(suitable.open_nodes, capacity_for(shape, kind, self._rooms.free), 0)
            best = max(best, int(np.minimum(capacity, 1 if shape.placement.layout == "spread" else 2**30).sum()))
        if best >= shape.placement.tasks:
            return None
        if shape.placement.tasks > 1:
            free = f"there is room for {best} of its {shape.placement.tasks} tasks"
            return Cause("room", f"needs {_needs(shape)}; {free}")
        place = self._best_node(shape)
        return Cause("room", f"needs {_needs(shape)}{self._also(shape, place)}; {self._free_words(shape, place)}")

    def _best_node(self, shape: Shape) -> int:
        """Of those that are up and have such devices at all, the one on which most is free."""
        machines, free = self._snapshot.machines, self._rooms.free
        suitable = machines.suitable(shape)
        kinds = [kind for kind in suitable.kinds if kind >= 0]
        nodes = np.flatnonzero(suitable.open_nodes)
        if kinds:
            having = machines.gpus[nodes][:, kinds].sum(axis=1) > 0
            nodes = nodes[having] if having.any() else nodes
        gpus = free.gpus[nodes][:, kinds].sum(axis=1) if kinds else np.zeros(len(nodes))
        return int(nodes[np.lexsort((-free.cpus[nodes], -gpus))[0]])

    def _also(self, shape: Shape, place: int) -> str:
        """What else it asks for and does not find there."""
        wanted, free = shape.resources, self._rooms.free
        if not wanted.gpus:
            return ""
        lacking = [cpus_in_words(wanted.cpus)] if free.cpus[place] < wanted.cpus else []
        lacking += [memory_in_words(wanted.memory_mib)] if free.memory[place] < wanted.memory_mib else []
        return f" with {' and '.join(lacking)}" if lacking else ""

    def _free_words(self, shape: Shape, place: int) -> str:
        suitable, free = self._snapshot.machines.suitable(shape), self._rooms.free
        kinds = [kind for kind in suitable.kinds if kind >= 0]
        count = max(0, int(free.gpus[place][kinds].sum())) if kinds else 0
        parts = [gpus_in_words(count, shape.resources.gpu_type)] if kinds else []
        parts.append(cpus_in_words(max(0, int(free.cpus[place]))))
        if free.memory[place] < shape.resources.memory_mib:
            parts.append(memory_in_words(max(0, int(free.memory[place]))))
        node = self._snapshot.machines.nodes[place]
        trouble = [device.problem or device.used_outside for device in node.devices if not device.may_be_used]
        out_of_use = f" ({len(trouble)} out of use: {trouble[0]})" if trouble and kinds else ""
        return f"{', '.join(parts)} are free on {node.name}{out_of_use}"

    def _kept(self, job: Job, shape: Shape, end: float) -> Cause | None:
        for window in self._windows:
            keep = keep_for_window(window, self._snapshot, self._rooms, self._ends, self._now)
            self._rooms.keeps = [keep]
            if window.concerns(job.project) and self._rooms.find(shape, job.project, end) is None:
                return Cause("reservation", self._window_words(window))
        self._rooms.keeps = []
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


def _running_per_array(snapshot: Snapshot, made: Plan) -> dict[int, int]:
    running = [snapshot.jobs.get(job_id) for job_id in set(snapshot.running["job"].tolist())]
    jobs = [job for job in running if job] + [start.job for start in made.starts]
    counts: dict[int, int] = {}
    for job in jobs:
        if job.array_id is not None:
            counts[job.array_id] = counts.get(job.array_id, 0) + 1
    return counts


def _needs(shape: Shape) -> str:
    wanted, placement = shape.resources, shape.placement
    each = resources_in_words(wanted)
    if wanted.gpus:
        each = gpus_in_words(wanted.gpus, wanted.gpu_type, wanted.gpu_memory_mib)
    if placement.tasks > 1:
        how = "each on a node of its own" if placement.layout == "spread" else "at once"
        return f"{placement.tasks} tasks of {each} {how}"
    whole = " alone on a node" if placement.exclusive else " on one node" if wanted.devices > 1 else ""
    return each + whole


def _conditions(shape: Shape) -> str:
    labels = f", label {', '.join(shape.placement.labels)}" if shape.placement.labels else ""
    return labels + (f", data class {shape.data_class}" if shape.data_class else "")


def _clock(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
