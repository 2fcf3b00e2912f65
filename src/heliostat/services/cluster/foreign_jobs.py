"""Foreign jobs: jobs on the cluster's nodes that were not submitted through Heliostat. They are not stored."""

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
    """Resources of a foreign job on one node."""

    job: ForeignJob
    cpus: int
    memory_mib: int
    gpus: int
    devices: tuple[str, ...]


def list_foreign_jobs(context: Context, caller: Caller, node: str | None = None) -> tuple[ForeignJob, ...]:
    """Running jobs first, the longest first; then waiting ones. For all users, as the list of jobs is."""
    jobs = [job for job in _jobs(context) if node is None or any(place.node == node for place in job.places)]
    return tuple(_redacted_for(caller.user, job) for job in sorted(jobs, key=_order))


def foreign_jobs_by_node(context: Context, caller: Caller) -> dict[str, list[ForeignJobOnNode]]:
    by_node: dict[str, list[ForeignJobOnNode]] = defaultdict(list)
    for job in list_foreign_jobs(context, caller):
        for place in job.places:
            nodes = len(job.places)
            gpus = len(place.devices) or job.gpus // nodes
            by_node[place.node].append(
                ForeignJobOnNode(job, job.cpus // nodes, job.memory_mib // nodes, gpus, place.devices)
            )
    return by_node


def devices_in_foreign_use(context: Context) -> set[str]:
    return {uuid for job in _jobs(context) for place in job.places for uuid in place.devices}


def mark_devices_in_foreign_use(node: Node, foreign_jobs: Iterable[ForeignJobOnNode]) -> Node:
    """The node, with `used_outside` set for each device that a foreign job uses."""
    job_by_device = {uuid: foreign.job for foreign in foreign_jobs for uuid in foreign.devices}
    if not job_by_device:
        return node
    devices = (
        replace(device, used_outside=device.used_outside or _describe_use(job_by_device[device.uuid]))
        if device.uuid in job_by_device
        else device
        for device in node.devices
    )
    return replace(node, devices=tuple(devices))


def _jobs(context: Context) -> Sequence[ForeignJob]:
    return context.engine.foreign_jobs() if isinstance(context.engine, HasOwnQueue) else ()


def _redacted_for(user: User, job: ForeignJob) -> ForeignJob:
    """Without name and reason, unless it is the user's own job or the user is an admin."""
    if user.is_admin or user.unix_user == job.user:
        return job
    return replace(job, name=None, reason=None)


def _order(job: ForeignJob) -> tuple[int, float]:
    at = job.started_at or job.submitted_at
    return _ORDER.get(job.state, len(_ORDER)), at.timestamp() if at else 0.0


def _describe_use(job: ForeignJob) -> str:
    return f"used by {job.id} of {job.user}, which was not submitted through Heliostat"
