"""Decides whether a workflow job starts, in the transaction that records the end of the last job it needs."""

import json
from dataclasses import replace
from operator import itemgetter
from typing import Any

from sqlalchemy import Row, and_, bindparam, null, select, update

from heliostat.models import DependencyCondition, JobId, JobSpec, JobState
from heliostat.server_log import get_logger
from heliostat.store import jobs as stored
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.job_rows import spec_to_text
from heliostat.store.schema import job_outputs, workflow_jobs, workflows
from heliostat.workflows.start_decision import (
    FinishedParent,
    StartCondition,
    StartDecision,
    decide_start,
    find_referenced_outputs,
)

log = get_logger()

_w, _d, _jobs = workflow_jobs.c, schema.dependencies.c, schema.jobs.c
_IS_NEEDED = and_(_d.job_id == bindparam("job"), _d.rule == DependencyCondition.WORKFLOW_DECIDES.value)
# Built once: building a statement takes longer than running it.
_ROW = (
    select(_w.key, _w.condition, _w["values"].label("matrix"), _w.is_late, workflows.c.params)
    .join(workflows, workflows.c.id == _w.workflow_id)
    .where(_w.job_id == bindparam("job"))
)
_UNFINISHED_PARENT = select(_d.parent_id).where(_IS_NEEDED, ~_d.is_settled).limit(1)
_PARENTS = select(_d.parent_id).where(_IS_NEEDED)
_ENDED_PARENTS_BASE = (
    select(
        _d.parent_id,
        _w.place,
        _w.key,
        _w.step,
        _w["values"].label("matrix"),
        _w.goes_on,
        _w.is_after_failure,
        _w.outcome,
        _jobs.state,
    )
    .select_from(schema.dependencies)
    .join(workflow_jobs, _w.job_id == _d.parent_id)
    .join(schema.jobs, _jobs.id == _d.parent_id)
    .where(_IS_NEEDED)
)
_ENDED_PARENTS = _ENDED_PARENTS_BASE.add_columns(null().label("outputs"))
_ENDED_PARENTS_WITH_OUTPUTS = _ENDED_PARENTS_BASE.outerjoin(
    job_outputs, job_outputs.c.job_id == _d.parent_id
).add_columns(job_outputs.c.content.label("outputs"))
_SET_OUTCOME = update(workflow_jobs).where(_w.job_id == bindparam("job"))
_SET_SPEC = update(schema.jobs).where(_jobs.id == bindparam("job"))


class WorkflowStartDecider:
    """For one transaction: ended parents do not change, so each is read once even if many jobs need it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        # By the names of the outputs that are read.
        self._parents: dict[frozenset[str], dict[JobId, tuple[int, FinishedParent]]] = {}

    def decide_job(self, job_id: JobId) -> StartDecision | None:
        """Decide and store the outcome; None: a job it needs is unfinished, or it is not part of a workflow.

        If it starts, its command and variables are filled in; otherwise the caller must cancel it.
        """
        tx = self._tx
        row = tx.conn.execute(_ROW, {"job": job_id}).first()
        if row is None or tx.conn.execute(_UNFINISHED_PARENT, {"job": job_id}).first():
            return None
        job = stored.get_job(tx.conn, job_id) if row.is_late else None
        words = _words(job.spec) if job is not None else []
        condition = StartCondition(row.key, row.condition, json.loads(row.params), json.loads(row.matrix), words)
        parents = self._ended_parents(job_id, find_referenced_outputs(condition))
        decision = _decide(job_id, condition, parents)
        outcome = {"job": job_id, "outcome": decision.outcome, "is_after_failure": decision.is_after_failure}
        tx.conn.execute(_SET_OUTCOME, outcome)
        if job is not None and decision.outcome is None:
            set_job_spec(tx, job_id, _with_words(job.spec, decision.filled_words))
        return decision

    def _ended_parents(self, job_id: JobId, names: frozenset[str]) -> list[FinishedParent]:
        """With only these outputs: all outputs of thousands of jobs would need much memory."""
        conn, known = self._tx.conn, self._parents.setdefault(names, {})
        parents = list(conn.execute(_PARENTS, {"job": job_id}).scalars())
        if any(parent not in known for parent in parents):
            statement = _ENDED_PARENTS_WITH_OUTPUTS if names else _ENDED_PARENTS
            for row in conn.execute(statement, {"job": job_id}):
                known[row.parent_id] = row.place, _finished_parent(row, names)
        placed = [known[parent] for parent in parents if parent in known]
        return [parent for _, parent in sorted(placed, key=itemgetter(0))]


def set_job_spec(tx: Transaction, job_id: JobId, spec: JobSpec) -> None:
    """Of a job that has not started. Specs are not cached: the controller reads them from the database."""
    tx.conn.execute(_SET_SPEC, {"job": job_id, "spec": spec_to_text(spec)})


def _decide(job_id: JobId, condition: StartCondition, parents: list[FinishedParent]) -> StartDecision:
    """An error in one workflow must not prevent that the end of a job is recorded."""
    try:
        return decide_start(condition, parents)
    except Exception:
        log.exception("workflow_start_undecided", job=job_id)
    reason = "its condition or its values cannot be evaluated"
    return StartDecision(
        (), "refused", reason, any(parent.has_failed or parent.is_after_failure for parent in parents)
    )


def _finished_parent(row: Row[Any], names: frozenset[str]) -> FinishedParent:
    return FinishedParent(
        key=row.key,
        step=row.step,
        state=row.outcome if row.outcome == "skipped" else JobState(row.state).value,
        outputs={name: value for name, value in json.loads(row.outputs or "{}").items() if name in names},
        is_matrix_variant=row.matrix != "{}",
        continue_on_failure=row.goes_on,
        is_after_failure=row.is_after_failure,
    )


def _words(spec: JobSpec) -> list[str]:
    return [*spec.command, *spec.env.values()]


def _with_words(spec: JobSpec, words: tuple[str, ...]) -> JobSpec:
    count = len(spec.command)
    return replace(spec, command=words[:count], env=dict(zip(spec.env, words[count:], strict=True)))
