"""Rows to records and back."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from functools import lru_cache
from typing import Any

from sqlalchemy import Row

from heliostat.models import (
    AttemptRecord,
    Dependency,
    Job,
    JobEvent,
    JobSpec,
    JobState,
    Layout,
    Mount,
    Place,
    Placement,
    Resources,
    Rule,
)
from heliostat.models.retries import USUAL_RETRY, Retry
from heliostat.models.workflows import Part
from heliostat.store import schema
from heliostat.store.times import to_seconds, to_time

_NAMES = (
    *("id", "kind", "name", "state", "user", "unix_user", "project"),
    *("cpus", "memory_mib", "gpus", "gpu_type", "gpu_memory_mib", "placement"),
    *("time_limit_seconds", "priority", "max_retries", "retries", "array_id", "array_index", "array_limit"),
    *("attempt", "node", "devices", "submitted_at", "started_at", "ended_at", "exit_code", "reason"),
    *("stop_requested", "places", "priority_class", "preemptible", "preemptions", "overtime", "checkpointed_at"),
    *("priority_everywhere", "waited_seconds", "waits_since", "handed_over", "origin", "after", "parents_left"),
    *("begin_at", "environment", "retry", "notify", "part"),
)
"""In the order in which `row_to_job` reads them."""
LISTED_COLUMNS = tuple(schema.jobs.c[name] for name in _NAMES)
ALL_COLUMNS = (*LISTED_COLUMNS, schema.jobs.c.spec)
_ANYWHERE, _NO_SPEC = Placement(), JobSpec()
_STATES = {state.value: state for state in JobState}
_SHORT_TEXT = 4096  # of a spec: to keep long ones would cost more than to read them again


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
        "submitted_at": to_seconds(job.submitted_at),
        "started_at": to_seconds(job.started_at),
        "ended_at": to_seconds(job.ended_at),
        "exit_code": job.exit_code,
        "reason": job.reason,
        "stop_requested": job.stop_requested,
        "places": places_to_text(job.places),
        "priority_class": job.priority_class,
        "preemptible": job.preemptible,
        "preemptions": job.preemptions,
        "overtime": job.overtime,
        "checkpointed_at": to_seconds(job.checkpointed_at),
        "priority_everywhere": job.priority_everywhere,
        "waited_seconds": job.waited_seconds,
        "waits_since": to_seconds(job.waits_since),
        "handed_over": job.handed_over,
        "origin": job.origin,
        "after": _after_to_text(job.after),
        "parents_left": job.parents_left,
        "begin_at": to_seconds(job.begin_at),
        "environment": job.environment,
        "retry": _retry_to_text(job.retry),
        "notify": _words_to_text(job.notify),
        "part": part_to_text(job.part),
    }


def row_to_job(row: Sequence[Any]) -> Job:
    """From a row of LISTED_COLUMNS (its spec stays empty) or ALL_COLUMNS. By position: to ask a row for each of
    its columns by name takes longer than everything else."""
    # fmt: off
    (id_, kind, name, state, user, unix_user, project,
     cpus, memory_mib, gpus, gpu_type, gpu_memory_mib, placement,
     time_limit_seconds, priority, max_retries, retries, array_id, array_index, array_limit,
     attempt, node, devices, submitted_at, started_at, ended_at, exit_code, reason,
     stop_requested, places, priority_class, preemptible, preemptions, overtime, checkpointed_at,
     priority_everywhere, waited_seconds, waits_since, handed_over, origin, after, parents_left,
     begin_at, environment, retry, notify, part, *spec) = row
    # fmt: on
    return Job(
        id_,
        kind,
        name,
        _STATES[state],
        user,
        unix_user,
        project,
        _resources(cpus, memory_mib, gpus, gpu_type, gpu_memory_mib),
        _text_to_spec(spec[0]) if spec else _NO_SPEC,
        to_time(submitted_at),
        time_limit_seconds,
        priority,
        max_retries,
        retries,
        array_id,
        array_index,
        array_limit,
        attempt,
        node,
        _text_to_words(devices),
        to_time(started_at),
        to_time(ended_at),
        exit_code,
        reason,
        stop_requested,
        _text_to_placement(placement),
        text_to_places(places),
        priority_class,
        bool(preemptible),
        preemptions,
        bool(overtime),
        to_time(checkpointed_at),
        bool(priority_everywhere),
        waited_seconds,
        to_time(waits_since),
        bool(handed_over),
        origin,
        _text_to_after(after),
        parents_left,
        to_time(begin_at),
        environment,
        _text_to_retry(retry),
        _text_to_words(notify),
        _text_to_part(part),
    )


def row_to_attempt(row: Row[Any]) -> AttemptRecord:
    return AttemptRecord(
        job_id=row.job_id,
        number=row.number,
        node=row.node,
        devices=_text_to_words(row.devices),
        state=JobState(row.state),
        created_at=to_time(row.created_at),
        started_at=to_time(row.started_at),
        ended_at=to_time(row.ended_at),
        exit_code=row.exit_code,
        reason=row.reason,
        places=text_to_places(row.places),
        gpu_type=row.gpu_type,
    )


def row_to_event(row: Row[Any]) -> JobEvent:
    return JobEvent(
        id=row.id,
        job_id=row.job_id,
        attempt=row.attempt,
        at=to_time(row.at),
        kind=row.kind,
        state=JobState(row.state),
        detail=row.detail,
    )


def event_to_row(event: JobEvent) -> dict[str, Any]:
    return {
        "id": event.id,
        "job_id": event.job_id,
        "attempt": event.attempt,
        "at": to_seconds(event.at),
        "kind": event.kind,
        "state": event.state.value,
        "detail": event.detail,
    }


def _words_to_text(words: tuple[str, ...]) -> str:
    return json.dumps(words) if words else "[]"


def _text_to_words(text: str) -> tuple[str, ...]:
    return () if text == "[]" else tuple(json.loads(text))


def _spec_to_json(spec: JobSpec) -> dict[str, Any]:
    return {
        "command": list(spec.command),
        "script": spec.script,
        "workdir": spec.workdir,
        "env": dict(spec.env),
        "grace_seconds": spec.grace_seconds,
        "preempt_signal": spec.preempt_signal,
        **_containment_to_json(spec),
    }


def _containment_to_json(spec: JobSpec) -> dict[str, Any]:
    """Only what is there: most jobs have nothing of it."""
    if not (spec.image or spec.runtime or spec.mounts or spec.network or spec.upload or spec.template):
        return {}
    mounts = [[mount.source, mount.target, mount.read_only] for mount in spec.mounts]
    given = {"image": spec.image, "runtime": spec.runtime, "mounts": mounts or None, "network": spec.network}
    given |= {"upload": spec.upload, "template": spec.template}
    return {name: value for name, value in given.items() if value is not None}


def _text_to_spec(text: str) -> JobSpec:
    return _usual_spec(text) if len(text) < _SHORT_TEXT else _json_to_spec(json.loads(text))


@lru_cache(64)
def _usual_spec(text: str) -> JobSpec:
    """Of many like jobs the same one: whoever holds two against each other need not look inside."""
    return _json_to_spec(json.loads(text))


def _json_to_spec(values: dict[str, Any]) -> JobSpec:
    mounts = tuple(Mount(*mount) for mount in values.get("mounts", ()))
    return JobSpec(**(values | {"command": tuple(values["command"]), "mounts": mounts}))


@lru_cache(1000)
def _resources(
    cpus: int, memory_mib: int, gpus: float, gpu_type: str | None, gpu_memory_mib: int | None
) -> Resources:
    """Most jobs ask for what others have asked for."""
    return Resources(cpus, memory_mib, int(gpus) if gpus == int(gpus) else gpus, gpu_type, gpu_memory_mib)


def _placement_to_text(placement: Placement) -> str:
    return "{}" if placement == _ANYWHERE else json.dumps(asdict(placement))


def _text_to_placement(text: str) -> Placement:
    if text == "{}":
        return _ANYWHERE
    values = json.loads(text)
    return Placement(**values | {"layout": Layout(values["layout"]), "labels": tuple(values["labels"])})


def _retry_to_text(retry: Retry) -> str:
    return "{}" if retry == USUAL_RETRY else json.dumps({"on": retry.on, "delay_seconds": retry.delay_seconds})


def _text_to_retry(text: str) -> Retry:
    if text == "{}":
        return USUAL_RETRY
    values = json.loads(text)
    return Retry(tuple(values["on"]), values["delay_seconds"])


def _after_to_text(after: tuple[Dependency, ...]) -> str:
    return json.dumps([[one.parent, one.rule.value] for one in after]) if after else "[]"


def _text_to_after(text: str) -> tuple[Dependency, ...]:
    return () if text == "[]" else tuple(Dependency(parent, Rule(rule)) for parent, rule in json.loads(text))


def part_to_text(part: Part | None) -> str | None:
    return None if part is None else json.dumps([part.of, part.number, part.key])


def _text_to_part(text: str | None) -> Part | None:
    return None if text is None else Part(*json.loads(text))


def spec_to_text(spec: JobSpec) -> str:
    return json.dumps(_spec_to_json(spec))


def places_to_text(places: tuple[Place, ...]) -> str:
    return json.dumps([[place.node, place.devices] for place in places]) if places else "[]"


def text_to_places(text: str) -> tuple[Place, ...]:
    return () if text == "[]" else tuple(Place(node, tuple(devices)) for node, devices in json.loads(text))


def to_column(value: object) -> object:
    """A field of a record as the database keeps it."""
    if isinstance(value, tuple) and value and isinstance(value[0], Place):
        return places_to_text(value)
    if isinstance(value, datetime):
        return to_seconds(value)
    if isinstance(value, Part):
        return part_to_text(value)
    if isinstance(value, JobState):
        return value.value
    return _words_to_text(value) if isinstance(value, tuple) else value
