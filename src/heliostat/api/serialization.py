"""JSON representations of jobs, nodes, events, forecasts, wait reasons and shares."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from heliostat.models import AttemptRecord, DependencyCondition, Job, JobEvent, Node, TaskPlacement
from heliostat.models.nodes import Device
from heliostat.models.workflows import Metric
from heliostat.services.accounts.share_delivery import AccountDelivery
from heliostat.services.accounts.share_tree import AccountShare
from heliostat.services.cluster.foreign_jobs import ForeignJobOnNode
from heliostat.services.fair_use.answers import IdleNotice
from heliostat.services.jobs.explanation import (
    EarlierStartOption,
    Forecast,
    ForecastAccuracy,
    JobExplanation,
    StartEstimate,
)
from heliostat.services.jobs.job_history import DependencyView
from heliostat.services.jobs.wait_status import WaitStatus
from heliostat.web.job_form.request_to_body import field_values, is_default_value, job_to_request

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
    """A job without the fields that are private to its owner: enough to understand the queue."""
    return serialize_job(job, None) | {"name": None, "exit_code": None, "environment": None, "notify": []}


def serialize_job_detail(
    job: Job, reason: str | None, forecast: Json | None, attempts: list[AttemptRecord]
) -> Json:
    requested = field_values(job_to_request(job))
    return serialize_job(job, reason, forecast) | {
        "spec": {
            field.name: value for field, value in requested if (field.request_path or "").startswith("spec.")
        },
        "attempts": [_attempt_view(attempt) for attempt in attempts],
        "request": serialize_request(job),
    }


def serialize_metrics(metrics: Mapping[str, Metric]) -> Json:
    """By name: the last value and its step, and the least, most and count of all values."""
    return {
        name: {
            "value": metric.value,
            "step": metric.step,
            "least": metric.least,
            "most": metric.most,
            "count": metric.count,
        }
        for name, metric in metrics.items()
    }


def serialize_request(job: Job) -> Json:
    """A body that submits the same job again; for an array element, a single job."""
    values = field_values(replace(job_to_request(job), array=None))
    return {
        field.name: value
        for field, value in values
        if field.name in _ALWAYS_SHOWN or not is_default_value(field, value)
    }


def serialize_dependencies(view: DependencyView) -> Json:
    """The first parents and children of a job, and the numbers of all."""
    return {
        "parents": [_dependency_view(job, condition) for job, condition in view.parents],
        "parent_count": view.parent_count,
        "children": [_dependency_view(job, condition) for job, condition in view.children],
        "child_count": view.child_count,
    }


def _dependency_view(job: Job, condition: DependencyCondition) -> Json:
    return {"job_id": job.id, "rule": condition.value, "state": job.state.value}


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


def serialize_node(node: Node, jobs: list[Job], foreign_jobs: Sequence[ForeignJobOnNode] = ()) -> Json:
    """A node and what these jobs use of it. Each job must have at least one task there."""
    tasks = [(job, place) for job in jobs for place in job.task_placements if place.node == node.name]
    return {
        "name": node.name,
        "state": node.state.value,
        "reason": node.reason,
        "cpus": node.cpus,
        "memory_mib": node.memory_mib,
        "cpus_used": sum(job.resources.cpus for job, _ in tasks) + sum(job.cpus for job in foreign_jobs),
        "memory_used_mib": sum(job.resources.memory_mib for job, _ in tasks)
        + sum(job.memory_mib for job in foreign_jobs),
        "gpus_used": _round_gpus(
            sum(job.resources.gpus for job, _ in tasks) + sum(job.gpus for job in foreign_jobs)
        ),
        "jobs": [job.id for job in jobs],
        "foreign_jobs": [on_node.job.id for on_node in foreign_jobs],
        "labels": dict(node.labels),
        "data_class": node.data_class,
        "min_data_class": node.min_data_class,
        "splits_devices": node.splits_devices,
        "notes": list(node.notes),
        "devices": [_device_view(device, _jobs_on_device(device.uuid, tasks)) for device in node.devices],
    }


def _jobs_on_device(uuid: str, tasks: list[tuple[Job, TaskPlacement]]) -> list[int]:
    return list(dict.fromkeys(job.id for job, place in tasks if uuid in place.devices))


def _device_view(device: Device, job_ids: list[int]) -> Json:
    view = asdict(device) | {"job_id": job_ids[0] if job_ids else None, "job_ids": job_ids}
    view |= {"number": device.number, "card_fraction": round(device.card_fraction, 4)}
    for private in ("processes", "files", "energy_millijoules", "pci", "errors", "fault"):
        del view[private]  # processes are private to their users; `used_outside` is public
    return view


def _places_view(places: tuple[TaskPlacement, ...]) -> list[Json]:
    return [{"node": place.node, "devices": list(place.devices)} for place in places]


def _round_gpus(number: float) -> float:
    """Fractions of GPUs are hundredths; whole numbers become int."""
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


def serialize_explanation(explanation: JobExplanation) -> Json:
    wait = explanation.wait_explanation
    view: Json = {
        "job_id": explanation.job.id,
        "state": explanation.job.state.value,
        "sentence": explanation.sentence,
        "blocked_by": wait.blocked_by if wait else explanation.ineligible_reason,
        "position": wait.position if wait else None,
        "pending": wait.pending if wait else None,
        "ahead": wait.position - 1 if wait and wait.position else None,
        "ahead_projects": wait.ahead_projects if wait else None,
        "first_ahead": [_ahead_view(job) for job in explanation.jobs_ahead],
        "share_used": wait.share_used if wait else None,
        "starts_by": serialize_time(wait.starts_by) if wait else None,
        "not_before": serialize_time(
            wait.not_before if wait else explanation.job.begin_at if explanation.ineligible_reason else None
        ),
        "forecast": serialize_forecast(explanation.forecast),
        "no_forecast_reason": explanation.no_forecast_reason,
        "accuracy": asdict(explanation.accuracy),
    }
    if explanation.what_if is not None:
        view["what_if"] = [_option_view(option) for option in explanation.what_if.options]
    return view


def serialize_start_forecast(estimate: StartEstimate, accuracy: ForecastAccuracy) -> Json:
    return {
        "starts_now": estimate.starts_now,
        "forecast": serialize_forecast(estimate.forecast),
        "no_forecast_reason": estimate.no_forecast_reason,
        "what_if": [_option_view(option) for option in estimate.options],
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


def serialize_wait_status(status: WaitStatus) -> Json:
    return {
        "state": status.state.value,
        "reason": status.reason or None,
        "position": status.position,
        "pending": status.pending,
        "forecast": serialize_forecast(status.forecast),
    }


def serialize_idle_notice(notice: IdleNotice) -> Json:
    return {
        "idle_since": serialize_time(notice.idle_since),
        "kept_until": serialize_time(notice.kept_until),
        "next_step": notice.next_step or None,
        "next_step_at": serialize_time(notice.next_step_at),
        "answers_left": notice.answers_left,
    }


def serialize_share_account(account: AccountShare) -> Json:
    return {
        "kind": account.kind,
        "name": account.name,
        "share": account.share,
        "entitled": None if account.entitled is None else round(account.entitled, 4),
        "usage_gpu_hours": round(account.usage, 2),
        "reserved_gpu_hours": round(account.reserved, 2),
        "usage_ratio": round(account.ratio, 3),
        "credit_gpu_hours": round(account.credit, 2),
        "children": [serialize_share_account(child) for child in account.children],
    }


def serialize_account_delivery(account: AccountDelivery) -> Json:
    entitled, delivered = sum(account.entitled), sum(account.delivered)
    return {
        "kind": account.kind,
        "name": account.name,
        "share": account.share,
        "share_fraction": None if account.share_fraction is None else round(account.share_fraction, 4),
        "entitled_gpu_hours": round(entitled, 2),
        "delivered_gpu_hours": round(delivered, 2),
        "delivered_ratio": None if account.ratio is None else round(account.ratio, 3),
        "entitled_by_step": [round(amount, 2) for amount in account.entitled],
        "delivered_by_step": [round(amount, 2) for amount in account.delivered],
        "children": [serialize_account_delivery(child) for child in account.children],
    }


def _ahead_view(job: Job) -> Json:
    """Only the public fields of a job."""
    gpus = job.resources.gpus * job.placement.tasks
    return {"id": job.id, "user": job.user, "project": job.project, "gpus": gpus}


def _option_view(option: EarlierStartOption) -> Json:
    return {
        "description": option.description,
        "change": option.change,
        "starts_now": option.starts_now,
        "forecast": serialize_forecast(option.forecast),
    }
