"""Conversion of jobs, attempts and events to database rows and back."""

import json
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

from sqlalchemy import Row, RowMapping

from heliostat.models import (
    AttemptRecord,
    Dependency,
    DependencyCondition,
    Job,
    JobEvent,
    JobSpec,
    JobState,
    Mount,
    PlacementRequest,
    Resources,
    TaskLayout,
    TaskPlacement,
)
from heliostat.models.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from heliostat.models.workflows import WorkflowMembership
from heliostat.store import schema
from heliostat.store.timestamps import to_datetime, to_timestamp

JOB_COLUMNS_WITHOUT_SPEC = tuple(column for column in schema.jobs.c if column.name != "spec")
JOB_COLUMNS = tuple(schema.jobs.c)
_DEFAULT_PLACEMENT = PlacementRequest()
_SPEC_FIELDS = tuple(field.name for field in fields(JobSpec))


def job_to_row(job: Job) -> dict[str, Any]:
    return {
        "id": job.id,
        "kind": job.kind,
        "name": job.name,
        "state": job.state.value,
        "user": job.user,
        "unix_user": job.unix_user,
        "project": job.project,
        "cpus": job.resources.cpus,
        "memory_mib": job.resources.memory_mib,
        "gpus": job.resources.gpus,
        "gpu_type": job.resources.gpu_type,
        "gpu_memory_mib": job.resources.gpu_memory_mib,
        "placement": _placement_to_text(job.placement),
        "spec": spec_to_text(job.spec),
        "time_limit_seconds": job.time_limit_seconds,
        "priority": job.priority,
        "max_retries": job.max_retries,
        "retries": job.retries,
        "array_id": job.array_id,
        "array_index": job.array_index,
        "array_limit": job.array_limit,
        "attempt": job.attempt,
        "node": job.node,
        "devices": _words_to_text(job.devices),
        "submitted_at": to_timestamp(job.submitted_at),
        "started_at": to_timestamp(job.started_at),
        "ended_at": to_timestamp(job.ended_at),
        "exit_code": job.exit_code,
        "reason": job.reason,
        "stop_requested": job.stop_requested,
        "places": placements_to_text(job.places),
        "priority_class": job.priority_class,
        "preemptible": job.preemptible,
        "preemptions": job.preemptions,
        "overtime": job.overtime,
        "checkpointed_at": to_timestamp(job.checkpointed_at),
        "priority_everywhere": job.priority_everywhere,
        "waited_seconds": job.waited_seconds,
        "waits_since": to_timestamp(job.waits_since),
        "booked_at": to_timestamp(job.booked_at),
        "dispatched": job.dispatched,
        "origin": job.origin,
        "after": _after_to_text(job.after),
        "parents_left": job.parents_left,
        "begin_at": to_timestamp(job.begin_at),
        "environment": job.environment,
        "retry": _retry_to_text(job.retry),
        "notify": _words_to_text(job.notify),
        "part": membership_to_text(job.part),
        "credit_gpu_hours": job.credit_gpu_hours,
    }


def row_to_job(row: RowMapping) -> Job:
    """From a row of JOB_COLUMNS."""
    return _job(row, _json_to_spec(json.loads(row["spec"])))


def row_to_job_without_spec(row: RowMapping) -> Job:
    """From a row of JOB_COLUMNS_WITHOUT_SPEC."""
    return _job(row, JobSpec())


def _job(row: RowMapping, spec: JobSpec) -> Job:
    return Job(
        id=row["id"],
        kind=row["kind"],
        name=row["name"],
        state=JobState(row["state"]),
        user=row["user"],
        unix_user=row["unix_user"],
        project=row["project"],
        resources=_resources(row),
        spec=spec,
        submitted_at=to_datetime(row["submitted_at"]),
        time_limit_seconds=row["time_limit_seconds"],
        priority=row["priority"],
        max_retries=row["max_retries"],
        retries=row["retries"],
        array_id=row["array_id"],
        array_index=row["array_index"],
        array_limit=row["array_limit"],
        attempt=row["attempt"],
        node=row["node"],
        devices=_text_to_words(row["devices"]),
        started_at=to_datetime(row["started_at"]),
        ended_at=to_datetime(row["ended_at"]),
        exit_code=row["exit_code"],
        reason=row["reason"],
        stop_requested=row["stop_requested"],
        placement=_text_to_placement(row["placement"]),
        places=text_to_placements(row["places"]),
        priority_class=row["priority_class"],
        preemptible=row["preemptible"],
        preemptions=row["preemptions"],
        overtime=row["overtime"],
        checkpointed_at=to_datetime(row["checkpointed_at"]),
        priority_everywhere=row["priority_everywhere"],
        waited_seconds=row["waited_seconds"],
        waits_since=to_datetime(row["waits_since"]),
        booked_at=to_datetime(row["booked_at"]),
        dispatched=row["dispatched"],
        origin=row["origin"],
        after=_text_to_after(row["after"]),
        parents_left=row["parents_left"],
        begin_at=to_datetime(row["begin_at"]),
        environment=row["environment"],
        retry=_text_to_retry(row["retry"]),
        notify=_text_to_words(row["notify"]),
        part=_text_to_part(row["part"]),
        credit_gpu_hours=row["credit_gpu_hours"],
    )


def row_to_attempt(row: Row[Any]) -> AttemptRecord:
    return AttemptRecord(
        job_id=row.job_id,
        number=row.number,
        node=row.node,
        devices=_text_to_words(row.devices),
        state=JobState(row.state),
        created_at=to_datetime(row.created_at),
        started_at=to_datetime(row.started_at),
        ended_at=to_datetime(row.ended_at),
        exit_code=row.exit_code,
        reason=row.reason,
        places=text_to_placements(row.places),
        gpu_type=row.gpu_type,
    )


def row_to_event(row: Row[Any]) -> JobEvent:
    return JobEvent(
        id=row.id,
        job_id=row.job_id,
        attempt=row.attempt,
        at=to_datetime(row.at),
        kind=row.kind,
        state=JobState(row.state),
        detail=row.detail,
    )


def event_to_row(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "attempt": event.attempt,
        "at": to_timestamp(event.at),
        "kind": event.kind,
        "state": event.state.value,
        "detail": event.detail,
    }


def _words_to_text(words: tuple[str, ...]) -> str:
    return json.dumps(words)


def _text_to_words(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _spec_to_json(spec: JobSpec) -> dict[str, Any]:
    """Without empty values: most jobs have neither a container nor a script."""
    mounts = [[mount.source, mount.target, mount.read_only] for mount in spec.mounts]
    values = {name: getattr(spec, name) for name in _SPEC_FIELDS} | {
        "env": dict(spec.env),
        "mounts": mounts or None,
    }
    return {name: value for name, value in values.items() if value is not None}


def _json_to_spec(values: dict[str, Any]) -> JobSpec:
    mounts = tuple(Mount(*mount) for mount in values.get("mounts", ()))
    return JobSpec(**(values | {"command": tuple(values["command"]), "mounts": mounts}))


def _resources(row: RowMapping) -> Resources:
    gpus = int(row["gpus"]) if row["gpus"] == int(row["gpus"]) else row["gpus"]
    return Resources(row["cpus"], row["memory_mib"], gpus, row["gpu_type"], row["gpu_memory_mib"])


def _placement_to_text(placement: PlacementRequest) -> str:
    return "{}" if placement == _DEFAULT_PLACEMENT else json.dumps(asdict(placement))


def _text_to_placement(text: str) -> PlacementRequest:
    if text == "{}":
        return _DEFAULT_PLACEMENT
    values = json.loads(text)
    return PlacementRequest(**values | {"layout": TaskLayout(values["layout"]), "labels": tuple(values["labels"])})


def _retry_to_text(retry: RetryPolicy) -> str:
    return (
        "{}"
        if retry == DEFAULT_RETRY_POLICY
        else json.dumps({"on": retry.on, "delay_seconds": retry.delay_seconds})
    )


def _text_to_retry(text: str) -> RetryPolicy:
    if text == "{}":
        return DEFAULT_RETRY_POLICY
    values = json.loads(text)
    return RetryPolicy(tuple(values["on"]), values["delay_seconds"])


def _after_to_text(after: tuple[Dependency, ...]) -> str:
    return json.dumps([[dependency.parent_id, dependency.condition.value] for dependency in after])


def _text_to_after(text: str) -> tuple[Dependency, ...]:
    return tuple(Dependency(parent, DependencyCondition(rule)) for parent, rule in json.loads(text))


def membership_to_text(part: WorkflowMembership | None) -> str | None:
    return None if part is None else json.dumps([part.of, part.number, part.key])


def _text_to_part(text: str | None) -> WorkflowMembership | None:
    return None if text is None else WorkflowMembership(*json.loads(text))


def spec_to_text(spec: JobSpec) -> str:
    return json.dumps(_spec_to_json(spec))


def placements_to_text(places: tuple[TaskPlacement, ...]) -> str:
    return json.dumps([[place.node, place.devices] for place in places])


def text_to_placements(text: str) -> tuple[TaskPlacement, ...]:
    return tuple(TaskPlacement(node, tuple(devices)) for node, devices in json.loads(text))


def to_column_value(value: object) -> object:
    """A field value as stored in the database."""
    if isinstance(value, tuple) and value and isinstance(value[0], TaskPlacement):
        return placements_to_text(value)
    if isinstance(value, datetime):
        return to_timestamp(value)
    if isinstance(value, WorkflowMembership):
        return membership_to_text(value)
    if isinstance(value, JobState):
        return value.value
    return _words_to_text(value) if isinstance(value, tuple) else value
