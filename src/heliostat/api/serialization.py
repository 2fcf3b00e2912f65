"""Records as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from heliostat.models import AttemptRecord, DependencyCondition, Job, JobEvent, Node, TaskPlacement
from heliostat.models.nodes import Device
from heliostat.services.accounts.shares import AccountShare
from heliostat.services.cluster.foreign_jobs import ForeignJobOnNode
from heliostat.services.jobs.explanation import (
    EarlierStartOption,
    Forecast,
    ForecastAccuracy,
    JobExplanation,
    StartEstimate,
)
from heliostat.services.jobs.job_history import DependencyView
from heliostat.web.job_form.job_body import field_values, is_default_value, job_to_request

Json = dict[str, Any]
_ALWAYS_SHOWN = ("command", "gpus", "priority", "max_retries", "grace_seconds")


def serialize_job(job: Job, reason: str | None, forecast: Json | None = None) -> Json:
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
        "gpu_memory_mib": resources.gpu_memory_mib,
        "tasks": job.placement.tasks,
        "layout": job.placement.layout.value,
        "exclusive": job.placement.exclusive,
        "labels": list(job.placement.labels),
        "reservation": job.placement.reservation,
        "time_limit_seconds": job.time_limit_seconds,
        "overtime": job.overtime,
        "priority": job.priority,
        "priority_everywhere": job.priority_everywhere,
        "priority_class": job.priority_class,
        "preemptible": job.preemptible,
        "preemptions": job.preemptions,
        "max_retries": job.max_retries,
        "retries": job.retries,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "array_limit": job.array_limit,
        "attempt": job.attempt,
        "node": job.node,
        "devices": list(job.devices),
        "places": _places_view(job.places),
        "submitted_at": serialize_time(job.submitted_at),
        "started_at": serialize_time(job.started_at),
        "checkpointed_at": serialize_time(job.checkpointed_at),
        "ended_at": serialize_time(job.ended_at),
        "exit_code": job.exit_code,
        "reason": reason,
        "forecast": forecast,
        "stop_requested": job.stop_requested,
        "source": job.origin_system,
        "source_number": job.origin_job_number,
        "parents_left": job.parents_left,
        "begin_at": serialize_time(job.begin_at),
        "environment": job.environment,
        "retry_on": list(job.retry.on),
        "retry_delay_seconds": job.retry.delay_seconds,
        "notify": list(job.notify),
    }


def serialize_public_job(job: Job) -> Json:
    """What everybody may know of somebody else's job: enough to understand the queue."""
    return serialize_job(job, None) | {"name": None, "exit_code": None, "environment": None, "notify": []}


def serialize_job_detail(
    job: Job, reason: str | None, forecast: Json | None, attempts: list[AttemptRecord]
) -> Json:
    asked = field_values(job_to_request(job))
    return serialize_job(job, reason, forecast) | {
        "spec": {field.name: value for field, value in asked if (field.request_path or "").startswith("spec.")},
        "attempts": [_attempt_view(attempt) for attempt in attempts],
        "request": serialize_request(job),
    }


def serialize_request(job: Job) -> Json:
    """A body that submits the same again; of an array, one job."""
    values = field_values(replace(job_to_request(job), array=None))
    return {
        field.name: value
        for field, value in values
        if field.name in _ALWAYS_SHOWN or not is_default_value(field, value)
    }


def serialize_dependencies(family: DependencyView) -> Json:
    """The first parents and children of a job; the counts are of all."""
    return {
        "parents": [_relative_view(job, rule) for job, rule in family.parents],
        "parent_count": family.parent_count,
        "children": [_relative_view(job, rule) for job, rule in family.children],
        "child_count": family.child_count,
    }


def _relative_view(job: Job, rule: DependencyCondition) -> Json:
    return {"job_id": job.id, "rule": rule.value, "state": job.state.value}


def serialize_event(event: JobEvent) -> Json:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "attempt": event.attempt,
        "at": serialize_time(event.at),
        "kind": event.kind,
        "state": event.state.value,
        "detail": event.detail,
    }


def serialize_node(node: Node, jobs: list[Job], guests: Sequence[ForeignJobOnNode] = ()) -> Json:
    """The node with what is used of it by these jobs, of which each has at least one task there, and by guests."""
    tasks = [(job, place) for job in jobs for place in job.task_placements if place.node == node.name]
    return {
        "name": node.name,
        "state": node.state.value,
        "reason": node.reason,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "cpus_used": sum(job.resources.cpus for job, _ in tasks) + sum(one.cpus for one in guests),
        "memory_used_mib": sum(job.resources.memory_mib for job, _ in tasks)
        + sum(one.memory_mib for one in guests),
        "gpus_used": _whole_if_it_is(
            sum(job.resources.gpus for job, _ in tasks) + sum(one.gpus for one in guests)
        ),
        "jobs": [job.id for job in jobs],
        "foreign_jobs": [one.job.id for one in guests],
        "labels": dict(node.labels),
        "data_class": node.data_class,
        "min_data_class": node.min_data_class,
        "splits_devices": node.splits_devices,
        "notes": list(node.notes),
        "devices": [_device_view(device, _holders(device.uuid, tasks)) for device in node.devices],
    }


def _holders(uuid: str, tasks: list[tuple[Job, TaskPlacement]]) -> list[int]:
    return list(dict.fromkeys(job.id for job, place in tasks if uuid in place.devices))


def _device_view(device: Device, job_ids: list[int]) -> Json:
    view = asdict(device) | {"job_id": job_ids[0] if job_ids else None, "job_ids": job_ids}
    del view["processes"]  # whose they are is not for everybody; used_outside says what matters
    return view


def _places_view(places: tuple[TaskPlacement, ...]) -> list[Json]:
    return [{"node": place.node, "devices": list(place.devices)} for place in places]


def _whole_if_it_is(number: float) -> float:
    """Parts of GPUs add up in hundredths."""
    rounded = round(number, 2)
    return int(rounded) if rounded == int(rounded) else rounded


def _attempt_view(attempt: AttemptRecord) -> Json:
    return {
        "number": attempt.number,
        "node": attempt.node,
        "devices": list(attempt.devices),
        "places": _places_view(attempt.places),
        "state": attempt.state.value,
        "created_at": serialize_time(attempt.created_at),
        "started_at": serialize_time(attempt.started_at),
        "ended_at": serialize_time(attempt.ended_at),
        "exit_code": attempt.exit_code,
        "reason": attempt.reason,
    }


def serialize_time(time: datetime | None) -> str | None:
    return None if time is None else time.isoformat().replace("+00:00", "Z")


def serialize_explanation(told: JobExplanation) -> Json:
    why = told.wait_explanation
    view: Json = {
        "job_id": told.job.id,
        "state": told.job.state.value,
        "sentence": told.sentence,
        "blocked_by": why.blocked_by if why else told.ineligible_reason,
        "position": why.position if why else None,
        "pending": why.pending if why else None,
        "ahead": why.position - 1 if why and why.position else None,
        "ahead_projects": why.ahead_projects if why else None,
        "first_ahead": [_ahead_view(job) for job in told.jobs_ahead],
        "share_used": why.share_used if why else None,
        "starts_by": serialize_time(why.starts_by) if why else None,
        "not_before": serialize_time(
            why.not_before if why else told.job.begin_at if told.ineligible_reason else None
        ),
        "forecast": serialize_forecast(told.forecast),
        "accuracy": asdict(told.accuracy),
    }
    if told.what_if is not None:
        view["what_if"] = [_option_view(option) for option in told.what_if.options]
    return view


def serialize_start_forecast(answer: StartEstimate, accuracy: ForecastAccuracy) -> Json:
    return {
        "starts_now": answer.starts_now,
        "forecast": serialize_forecast(answer.forecast),
        "what_if": [_option_view(option) for option in answer.options],
        "accuracy": asdict(accuracy),
    }


def serialize_forecast(forecast: Forecast | None) -> Json | None:
    if forecast is None:
        return None
    return {
        "earliest_at": serialize_time(forecast.earliest_at),
        "likely_at": serialize_time(forecast.likely_at),
        "latest_at": serialize_time(forecast.latest_at),
        "confidence": forecast.confidence,
        "runs": forecast.runs,
        "limits_at": serialize_time(forecast.limits_at),
        "source": forecast.source,
    }


def serialize_share_account(account: AccountShare) -> Json:
    return {
        "kind": account.kind,
        "name": account.name,
        "share": account.share,
        "entitled": None if account.entitled is None else round(account.entitled, 4),
        "usage_gpu_hours": round(account.usage, 2),
        "usage_ratio": round(account.ratio, 3),
        "priority_penalty": round(account.points, 3),
        "children": [serialize_share_account(one) for one in account.children],
    }


def _ahead_view(job: Job) -> Json:
    """What everybody may know of somebody else's job."""
    gpus = job.resources.gpus * job.placement.tasks
    return {"id": job.id, "user": job.user, "project": job.project, "gpus": gpus}


def _option_view(option: EarlierStartOption) -> Json:
    return {
        "description": option.description,
        "change": option.change,
        "starts_now": option.starts_now,
        "forecast": serialize_forecast(option.forecast),
    }
