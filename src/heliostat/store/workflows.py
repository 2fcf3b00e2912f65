"""Workflows and sweeps, and outputs and metrics of their jobs, in the database."""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Table, delete, func, insert, or_, select, update
from sqlalchemy.sql import ColumnElement

from heliostat.models import ACTIVE_STATES, Job, JobId, JobState
from heliostat.models.workflows import Metric, Sweep, Workflow, WorkflowId, WorkflowJob, WorkflowJobCounts
from heliostat.store import schema
from heliostat.store.database import Transaction, query_batches
from heliostat.store.job_rows import JOB_COLUMNS_WITHOUT_SPEC, row_to_job_without_spec
from heliostat.store.schema import job_metrics, job_outputs, sweeps, workflow_jobs, workflows
from heliostat.store.timestamps import to_datetime, to_timestamp

_f, _w, _jobs = workflows.c, workflow_jobs.c, schema.jobs.c
_LISTED = (_f.id, _f.name, _f.user, _f.project, _f.created_at, _f.params)

_s = sweeps.c


def add_workflow(tx: Transaction, workflow: Workflow, document: str) -> WorkflowId:
    values = {
        "name": workflow.name,
        "user": workflow.user,
        "project": workflow.project,
        "created_at": to_timestamp(workflow.created_at),
        "params": json.dumps(dict(workflow.params)),
        "document": document,
    }
    key = tx.conn.execute(insert(workflows).values(values)).inserted_primary_key
    return int(key[0]) if key else 0


def add_workflow_jobs(tx: Transaction, jobs: Iterable[WorkflowJob]) -> None:
    tx.conn.execute(insert(workflow_jobs), [_values(job) for job in jobs])


def replace_workflow_jobs(
    tx: Transaction, workflow_id: WorkflowId, replaced: Iterable[tuple[WorkflowJob, JobId]]
) -> None:
    """Replace ended jobs by new ones."""
    for job, job_id in replaced:
        where = (_w.workflow_id == workflow_id) & (_w.key == job.key)
        values = {
            "job_id": job_id,
            "earlier": json.dumps([*job.previous_job_ids, job.job_id]),
            "outcome": None,
            "is_after_failure": False,
        }
        tx.conn.execute(update(workflow_jobs).where(where).values(values))


def find_workflow(conn: Connection, workflow_id: WorkflowId) -> Workflow | None:
    row = conn.execute(select(*_LISTED).where(_f.id == workflow_id)).first()
    return None if row is None else _workflow(row)


def get_workflow_document(conn: Connection, workflow_id: WorkflowId) -> str:
    document: str = conn.execute(select(_f.document).where(_f.id == workflow_id)).scalar_one()
    return document


def find_workflow_of_job(conn: Connection, job_id: JobId) -> WorkflowId | None:
    """The workflow to which the job belongs now."""
    workflow_id: WorkflowId | None = conn.execute(select(_w.workflow_id).where(_w.job_id == job_id)).scalar()
    return workflow_id


def list_workflows(
    conn: Connection, user: str | None, projects: Collection[str], limit: int, before: WorkflowId | None = None
) -> list[Workflow]:
    """Newest first: those of a user and of these projects; None: all."""
    query = select(*_LISTED).order_by(_f.id.desc()).limit(limit)
    if user is not None:
        conditions: list[ColumnElement[bool]] = [_f.user == user, _f.project.in_(list(projects))]
        query = query.where(or_(*conditions))
    if before is not None:
        query = query.where(_f.id < before)
    return [_workflow(row) for row in conn.execute(query)]


def list_workflow_jobs(conn: Connection, workflow_id: WorkflowId) -> list[tuple[WorkflowJob, Job]]:
    """In the order of the file; the jobs without their spec."""
    query = (
        select(workflow_jobs, *JOB_COLUMNS_WITHOUT_SPEC)
        .join(schema.jobs, _jobs.id == _w.job_id)
        .where(_w.workflow_id == workflow_id)
        .order_by(_w.place)
    )
    return [(_workflow_job(row), row_to_job_without_spec(row)) for row in conn.execute(query).mappings()]


def count_workflow_jobs(conn: Connection, ids: Sequence[WorkflowId]) -> dict[WorkflowId, WorkflowJobCounts]:
    query = (
        select(_w.workflow_id, _jobs.state, _w.outcome, _w.goes_on, func.count())
        .join(schema.jobs, _jobs.id == _w.job_id)
        .where(_w.workflow_id.in_(list(ids)))
        .group_by(_w.workflow_id, _jobs.state, _w.outcome, _w.goes_on)
    )
    counts: dict[WorkflowId, dict[str, int]] = {number: {} for number in ids}
    for number, state, outcome, goes_on, count in conn.execute(query):
        kind = classify_workflow_job(JobState(state), outcome, goes_on=bool(goes_on))
        counts[number][kind] = counts[number].get(kind, 0) + count
    return {number: WorkflowJobCounts(**by_kind) for number, by_kind in counts.items()}


def classify_workflow_job(state: JobState, outcome: str | None, *, goes_on: bool) -> str:
    """The field of WorkflowJobCounts in which a job counts."""
    if outcome is not None:
        return "skipped" if outcome == "skipped" else "failed"
    if state in ACTIVE_STATES:
        return "active"
    if state in (JobState.COMPLETED, JobState.CANCELLED):
        return state.value
    if state in (JobState.FAILED, JobState.TIMED_OUT, JobState.LOST):
        return "forgiven" if goes_on else "failed"
    return "waiting"


def find_workflows_ended_before(conn: Connection, ids: Sequence[WorkflowId], before: float) -> set[WorkflowId]:
    """Workflows whose jobs had all ended by then, or that do not exist."""
    query = (
        select(_w.workflow_id)
        .join(schema.jobs, _jobs.id == _w.job_id)
        .where(_w.workflow_id.in_(list(ids)), or_(_jobs.ended_at.is_(None), _jobs.ended_at >= before))
        .distinct()
    )
    return set(ids) - set(conn.execute(query).scalars())


def _workflow(row: Any) -> Workflow:
    params = json.loads(row.params)
    return Workflow(row.id, row.name, row.user, row.project, to_datetime(row.created_at), params)


def _values(job: WorkflowJob) -> dict[str, Any]:
    return {
        "workflow_id": job.workflow_id,
        "key": job.key,
        "job_id": job.job_id,
        "step": job.step,
        "place": job.position,
        "values": json.dumps(dict(job.values)),
        "needs": json.dumps(job.needs),
        "condition": job.condition,
        "goes_on": job.continue_on_failure,
        "is_late": job.has_deferred_values,
        "outcome": job.outcome,
        "is_after_failure": job.is_after_failure,
        "earlier": json.dumps(job.previous_job_ids),
    }


def _workflow_job(values: Any) -> WorkflowJob:
    return WorkflowJob(
        workflow_id=values["workflow_id"],
        key=values["key"],
        job_id=values["job_id"],
        step=values["step"],
        position=values["place"],
        values=json.loads(values["values"]),
        needs=tuple(json.loads(values["needs"])),
        condition=values["condition"],
        continue_on_failure=bool(values["goes_on"]),
        has_deferred_values=bool(values["is_late"]),
        outcome=values["outcome"],
        is_after_failure=bool(values["is_after_failure"]),
        previous_job_ids=tuple(json.loads(values["earlier"])),
    )


def set_job_outputs(tx: Transaction, job_id: JobId, values: Mapping[str, str]) -> None:
    """Replaces earlier outputs."""
    _put(tx, job_outputs, job_id, json.dumps(dict(values)) if values else None)


def set_job_metrics(tx: Transaction, job_id: JobId, metrics: Mapping[str, Metric]) -> None:
    text = json.dumps([asdict(metric) for metric in metrics.values()]) if metrics else None
    _put(tx, job_metrics, job_id, text)


def get_job_outputs(conn: Connection, job_ids: Sequence[JobId]) -> dict[JobId, dict[str, str]]:
    return {job_id: json.loads(text) for job_id, text in _read_texts(conn, job_outputs, job_ids)}


def get_job_metrics(conn: Connection, job_ids: Sequence[JobId]) -> dict[JobId, dict[str, Metric]]:
    return {
        job_id: {metric["name"]: Metric(**metric) for metric in json.loads(text)}
        for job_id, text in _read_texts(conn, job_metrics, job_ids)
    }


def _put(tx: Transaction, table: Table, job_id: JobId, text: str | None) -> None:
    tx.conn.execute(delete(table).where(table.c.job_id == job_id))
    if text is not None:
        tx.conn.execute(insert(table).values(job_id=job_id, content=text))


def _read_texts(conn: Connection, table: Table, job_ids: Sequence[JobId]) -> list[tuple[JobId, str]]:
    texts: list[tuple[JobId, str]] = []
    for batch in query_batches(job_ids):
        rows = conn.execute(select(table).where(table.c.job_id.in_(batch)))
        texts += [(row.job_id, row.content) for row in rows]
    return texts


def add_sweep(tx: Transaction, sweep: Sweep) -> int:
    values = {
        "name": sweep.name,
        "user": sweep.user,
        "project": sweep.project,
        "created_at": to_timestamp(sweep.created_at),
        "array_id": sweep.array_id,
        "first_job": sweep.first_job,
        "last_job": sweep.last_job,
        "table": json.dumps([dict(row) for row in sweep.table]),
    }
    key = tx.conn.execute(insert(sweeps).values(values)).inserted_primary_key
    return int(key[0]) if key else 0


def find_sweep(conn: Connection, number: int) -> Sweep | None:
    row = conn.execute(select(sweeps).where(_s.id == number)).first()
    return None if row is None else _sweep(row)


def find_sweep_by_first_job(conn: Connection, first_job: JobId) -> Sweep | None:
    row = conn.execute(select(sweeps).where(_s.first_job == first_job)).first()
    return None if row is None else _sweep(row)


def list_sweeps(
    conn: Connection, user: str | None, projects: Collection[str], limit: int, before: int | None = None
) -> list[Sweep]:
    """Newest first: those of a user and of these projects; None: all."""
    query = select(sweeps).order_by(_s.id.desc()).limit(limit)
    if user is not None:
        query = query.where(or_(_s.user == user, _s.project.in_(list(projects))))
    if before is not None:
        query = query.where(_s.id < before)
    return [_sweep(row) for row in conn.execute(query)]


def _sweep(row: Any) -> Sweep:
    return Sweep(
        id=row.id,
        name=row.name,
        user=row.user,
        project=row.project,
        created_at=to_datetime(row.created_at),
        array_id=row.array_id,
        first_job=row.first_job,
        last_job=row.last_job,
        table=tuple(json.loads(row._mapping["table"])),
    )
