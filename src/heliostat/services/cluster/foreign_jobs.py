"""Jobs on our machines that did not come through us, as one person may see them. Nothing of them is stored."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from heliostat.engines.contract import HasOwnQueue
from heliostat.models import Caller, ForeignJob, Node, User
from heliostat.services.context import Context

__all__ = [
    "ForeignJob",
    "ForeignJobOnNode",
    "devices_in_foreign_use",
    "foreign_jobs_by_node",
    "list_foreign_jobs",
    "mark_devices_in_foreign_use",
]
_ORDER = {"running": 0, "completing": 1, "suspended": 2}


@dataclass(frozen=True, slots=True)
class ForeignJobOnNode:
    """What such a job has on one node."""

    job: ForeignJob
    cpus: int
    memory_mib: int
    gpus: int
    devices: tuple[str, ...]


def list_foreign_jobs(context: Context, caller: Caller, node: str | None = None) -> tuple[ForeignJob, ...]:
    """Those that run first, the longest first; then those that wait. For everybody, as the list of jobs is."""
    jobs = [job for job in _jobs(context) if node is None or any(place.node == node for place in job.places)]
    return tuple(_as_seen_by(caller.user, job) for job in sorted(jobs, key=_order))


def foreign_jobs_by_node(context: Context, caller: Caller) -> dict[str, list[ForeignJobOnNode]]:
    """Who of them is where."""
    found: dict[str, list[ForeignJobOnNode]] = defaultdict(list)
    for job in list_foreign_jobs(context, caller):
        for place in job.places:
            nodes = len(job.places)
            gpus = len(place.devices) or job.gpus // nodes
            found[place.node].append(
                ForeignJobOnNode(job, job.cpus // nodes, job.memory_mib // nodes, gpus, place.devices)
            )
    return found


def devices_in_foreign_use(context: Context) -> set[str]:
    return {uuid for job in _jobs(context) for place in job.places for uuid in place.devices}


def mark_devices_in_foreign_use(node: Node, guests: Iterable[ForeignJobOnNode]) -> Node:
    """The node, with its devices saying which of them others use."""
    users = {uuid: guest.job for guest in guests for uuid in guest.devices}
    if not users:
        return node
    devices = (
        replace(device, used_outside=device.used_outside or _words(users[device.uuid]))
        if device.uuid in users
        else device
        for device in node.devices
    )
    return replace(node, devices=tuple(devices))


def _jobs(context: Context) -> Sequence[ForeignJob]:
    return context.engine.foreign_jobs() if isinstance(context.engine, HasOwnQueue) else ()


def _as_seen_by(user: User, job: ForeignJob) -> ForeignJob:
    """Of somebody else's job only what explains the queue."""
    if user.is_admin or user.unix_user == job.user:
        return job
    return replace(job, name=None, reason=None)


def _order(job: ForeignJob) -> tuple[int, float]:
    at = job.started_at or job.submitted_at
    return _ORDER.get(job.state, len(_ORDER)), at.timestamp() if at else 0.0


def _words(job: ForeignJob) -> str:
    return f"used by {job.id} of {job.user}, which was not submitted here"
