"""Decide what starts where: a pure function of the snapshot."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from heliostat.models import Job, JobId, NodeState, Resources
from heliostat.scheduling.room import Room, cpus_in_words, gpus_in_words, rooms_of
from heliostat.scheduling.snapshot import Plan, Policy, Snapshot, Start


def plan(snapshot: Snapshot, policy: Policy, now: datetime) -> Plan:
    """Highest priority first, then oldest; each on the first node with room for it."""
    rooms = rooms_of(snapshot)
    running: Counter[int | None] = Counter(held.job.array_id for held in snapshot.allocations)
    starts: list[Start] = []
    reasons: dict[JobId, str] = {}
    full: set[Resources] = set()
    cpus_left = any(room.cpus > 0 for room in rooms)
    for job in snapshot.pending:
        if reasons and not cpus_left:
            break
        if not (reason := _array_is_full(job, running)):
            if job.resources in full:
                reason = "waits for jobs ahead of it that need the same"
            elif start := _first_fit(job, rooms):
                starts.append(start)
                running[job.array_id] += 1
                cpus_left = any(room.cpus > 0 for room in rooms)
                continue
            else:
                full.add(job.resources)
                reason = explain(job.resources, rooms)
        if len(reasons) < policy.reasons:  # but go on: those that wait must not keep back those that fit
            reasons[job.id] = reason
    return Plan(tuple(starts), reasons)


def queue_key(job: Job) -> tuple[int, JobId]:
    """The order of the queue: a snapshot's pending jobs come sorted by this.

    Numbers grow with each submission; the wall clock may be set back.
    """
    return (-job.priority, job.id)


def explain(wanted: Resources, rooms: Iterable[Room]) -> str:
    """Why there is no room now, in words."""
    rooms = list(rooms)
    if not rooms:
        return "no node is up"
    able = [room for room in rooms if room.could_ever_take(wanted)]
    if not able:
        return f"no node has {in_words(wanted)}"
    open_rooms = [room for room in able if room.node.state is NodeState.UP]
    if not open_rooms:
        return "every node that could run it is drained or down"
    best = max(open_rooms, key=lambda room: room.free_devices(wanted.gpu_type))
    return f"needs {in_words(wanted)}; {best.describe(wanted)} on {best.node.name}"


def _first_fit(job: Job, rooms: Iterable[Room]) -> Start | None:
    for room in rooms:
        if room.node.state is NodeState.UP and room.fits(job.resources):
            return Start(job, room.node.name, room.take(job.resources))
    return None


def _array_is_full(job: Job, running: Counter[int | None]) -> str | None:
    if job.array_id is None or job.array_limit is None or running[job.array_id] < job.array_limit:
        return None
    return f"its array runs at most {job.array_limit} at once"


def in_words(wanted: Resources) -> str:
    gpus = [gpus_in_words(wanted.gpus, wanted.gpu_type)] if wanted.gpus else []
    return ", ".join([*gpus, cpus_in_words(wanted.cpus), f"{wanted.memory_mib} MiB"])
