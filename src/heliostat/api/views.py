"""Records as JSON."""

from dataclasses import asdict
from datetime import datetime
from typing import Any, NamedTuple

from heliostat.models import AttemptRecord, Job, JobEvent, Node
from heliostat.models.nodes import Device

Json = dict[str, Any]


def job_view(job: Job, reason: str | None) -> Json:
    resources = job.resources
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state.value,
        "user": job.user,
        "project": job.project,
        "cpus": resources.cpus,
        "memory_mib": resources.memory_mib,
        "gpus": resources.gpus,
        "gpu_type": resources.gpu_type,
        "time_limit_seconds": job.time_limit_seconds,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "retries": job.retries,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "array_limit": job.array_limit,
        "attempt": job.attempt,
        "node": job.node,
        "devices": list(job.devices),
        "submitted_at": _time(job.submitted_at),
        "started_at": _time(job.started_at),
        "ended_at": _time(job.ended_at),
        "exit_code": job.exit_code,
        "reason": reason,
        "stop_requested": job.stop_requested,
    }


def public_job_view(job: Job) -> Json:
    """What everybody may know of somebody else's job: enough to understand the queue."""
    return job_view(job, None) | {"name": None, "exit_code": None}


def job_detail_view(job: Job, reason: str | None, attempts: list[AttemptRecord]) -> Json:
    spec = job.spec
    return job_view(job, reason) | {
        "spec": {
            "command": list(spec.command),
            "script": spec.script,
            "workdir": spec.workdir,
            "env": dict(spec.env),
            "grace_seconds": spec.grace_seconds,
        },
        "attempts": [_attempt_view(attempt) for attempt in attempts],
        "request": request_view(job),
    }


def request_view(job: Job) -> Json:
    """A body that submits the same again."""
    spec, resources = job.spec, job.resources
    body = {
        "command": list(spec.command),
        "script": spec.script,
        "name": job.name,
        "project": job.project,
        "cpus": resources.cpus,
        "memory": resources.memory_mib,
        "gpus": resources.gpus,
        "gpu_type": resources.gpu_type,
        "time_limit": job.time_limit_seconds,
        "workdir": spec.workdir,
        "env": dict(spec.env),
        "priority": job.priority,
        "max_retries": job.max_retries,
        "grace_seconds": spec.grace_seconds,
    }
    return {name: value for name, value in body.items() if value not in (None, {})}


def event_view(event: JobEvent) -> Json:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "attempt": event.attempt,
        "at": _time(event.at),
        "kind": event.kind,
        "state": event.state.value,
        "detail": event.detail,
    }


class Tenant(NamedTuple):
    """What a job holds of one node."""

    job: Job
    tasks: int
    devices: tuple[str, ...]


def node_view(node: Node, tenants: list[Tenant]) -> Json:
    gpus = sum(tenant.job.resources.gpus * tenant.tasks for tenant in tenants)
    return {
        "name": node.name,
        "state": node.state.value,
        "reason": node.reason,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "cpus_used": sum(tenant.job.resources.cpus * tenant.tasks for tenant in tenants),
        "memory_used_mib": sum(tenant.job.resources.memory_mib * tenant.tasks for tenant in tenants),
        "gpus_used": int(gpus) if gpus == int(gpus) else round(gpus, 3),
        "jobs": [tenant.job.id for tenant in tenants],
        "labels": dict(node.labels),
        "data_class": node.data_class,
        "min_data_class": node.min_data_class,
        "splits_devices": node.splits_devices,
        "notes": list(node.notes),
        "devices": [_device_view(device, tenants) for device in node.devices],
    }


def _device_view(device: Device, tenants: list[Tenant]) -> Json:
    """Whose the processes on it are is not for everybody; used_outside says what matters."""
    holders = [tenant.job.id for tenant in tenants if device.uuid in tenant.devices]
    view = asdict(device) | {"job_id": holders[0] if holders else None, "job_ids": holders}
    del view["processes"]
    return view


def _attempt_view(attempt: AttemptRecord) -> Json:
    return {
        "number": attempt.number,
        "node": attempt.node,
        "devices": list(attempt.devices),
        "state": attempt.state.value,
        "created_at": _time(attempt.created_at),
        "started_at": _time(attempt.started_at),
        "ended_at": _time(attempt.ended_at),
        "exit_code": attempt.exit_code,
        "reason": attempt.reason,
    }


def _time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")
