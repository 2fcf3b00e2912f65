"""Decides over jobs of workflows when those they need are over: in the transaction of the last one's end, once."""

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
from heliostat.store.rows import spec_to_text
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
# Built once: to build one of them takes longer than to run it.
_ROW = (
    select(_w.key, _w.condition, _w["values"].label("matrix"), _w.is_late, workflows.c.params)
    .join(workflows, workflows.c.id == _w.workflow_id)
    .where(_w.job_id == bindparam("job"))
)
_STILL_OPEN = select(_d.parent_id).where(_IS_NEEDED, ~_d.is_settled).limit(1)
_PARENTS = select(_d.parent_id).where(_IS_NEEDED)
_OVER_ALONE = (
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
_OVER = _OVER_ALONE.add_columns(null().label("outputs"))
_OVER_WITH_OUTPUTS = _OVER_ALONE.outerjoin(job_outputs, job_outputs.c.job_id == _d.parent_id).add_columns(
    job_outputs.c.content.label("outputs")
)
_NOTE = update(workflow_jobs).where(_w.job_id == bindparam("job"))
_SET_SPEC = update(schema.jobs).where(_jobs.id == bindparam("job"))


class WorkflowStartDecider:
    """Of one round, in one transaction: who is over stays so, and is looked up once however many need it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._known: dict[
            frozenset[str], dict[JobId, tuple[int, FinishedParent]]
        ] = {}  # by the values that are looked at

    def decide_job(self, job_id: JobId) -> StartDecision | None:
        """What becomes of it, written down; None: somebody it needs is not over, or it is of no workflow.

        Who is to start has its command and variables filled in; who is not is for the caller to cancel.
        """
        tx = self._tx
        row = tx.conn.execute(_ROW, {"job": job_id}).first()
        if row is None or tx.conn.execute(_STILL_OPEN, {"job": job_id}).first():
            return None
        job = stored.get_job(tx.conn, job_id) if row.is_late else None
        words = _words(job.spec) if job is not None else []
        gate = StartCondition(row.key, row.condition, json.loads(row.params), json.loads(row.matrix), words)
        verdict = _decided(job_id, gate, self._those_over(job_id, find_referenced_outputs(gate)))
        noted = {"job": job_id, "outcome": verdict.outcome, "is_after_failure": verdict.is_after_failure}
        tx.conn.execute(_NOTE, noted)
        if job is not None and verdict.outcome is None:
            set_job_spec(tx, job_id, _with_words(job.spec, verdict.filled_words))
        return verdict

    def _those_over(self, job_id: JobId, named: frozenset[str]) -> list[FinishedParent]:
        """With only those values that are looked at: all of thousands of jobs would be much to hold."""
        conn, known = self._tx.conn, self._known.setdefault(named, {})
        parents = list(conn.execute(_PARENTS, {"job": job_id}).scalars())
        if any(parent not in known for parent in parents):
            statement = _OVER_WITH_OUTPUTS if named else _OVER
            for row in conn.execute(statement, {"job": job_id}):
                known[row.parent_id] = row.place, _over(row, named)
        found = [known[parent] for parent in parents if parent in known]
        return [one for _, one in sorted(found, key=itemgetter(0))]


def set_job_spec(tx: Transaction, job_id: JobId, spec: JobSpec) -> None:
    """Of one that has not started. Nobody keeps a picture of it: whoever starts it reads it from here."""
    tx.conn.execute(_SET_SPEC, {"job": job_id, "spec": spec_to_text(spec)})


def _decided(job_id: JobId, gate: StartCondition, over: list[FinishedParent]) -> StartDecision:
    """Whatever is wrong with one workflow must not keep the end of a job from being written down."""
    try:
        return decide_start(gate, over)
    except Exception:
        log.exception("gate_undecided", job=job_id)
    reason = "its workflow cannot start it: its condition or its values cannot be worked out"
    return StartDecision((), "refused", reason, any(one.has_failed or one.is_after_failure for one in over))


def _over(row: Row[Any], named: frozenset[str]) -> FinishedParent:
    return FinishedParent(
        key=row.key,
        step=row.step,
        state=row.outcome if row.outcome == "skipped" else JobState(row.state).value,
        outputs={name: value for name, value in json.loads(row.outputs or "{}").items() if name in named},
        is_matrix_variant=row.matrix != "{}",
        continue_on_failure=row.goes_on,
        is_after_failure=row.is_after_failure,
    )


def _words(spec: JobSpec) -> list[str]:
    return [*spec.command, *spec.env.values()]


def _with_words(spec: JobSpec, words: tuple[str, ...]) -> JobSpec:
    count = len(spec.command)
    return replace(spec, command=words[:count], env=dict(zip(spec.env, words[count:], strict=True)))
