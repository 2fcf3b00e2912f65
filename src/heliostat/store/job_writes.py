"""Writes jobs, attempts and their events: each state transition is checked against the current state."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, Insert, Table, Update, bindparam, delete, insert, select, update
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import DBAPIError

from heliostat.models import (
    TERMINAL_STATES,
    WAITING_STATES,
    Attempt,
    DependencyCondition,
    Job,
    JobEvent,
    JobId,
    JobState,
    may_transition,
)
from heliostat.models.dependencies import describe_broken_dependency, describe_end
from heliostat.models.environments import BUILD_FAILURE_PREFIX
from heliostat.store import dependencies, schema, workflow_start_decisions
from heliostat.store.database import Transaction, query_batches
from heliostat.store.job_rows import event_to_row, job_to_row, placements_to_text, to_column_value
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts, _events = schema.jobs, schema.attempts, schema.events


class PreparedStatement:
    """A statement that writes rows, compiled once and passed directly to the driver. Values are stored unchanged.
    `columns`: those that an insert sets; None: all.

    Every job is written a dozen times. SQLAlchemy would take half a millisecond more for each job, during which no
    other change can be written.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        compiled: Any = statement.compile(dialect=sqlite.dialect(), column_keys=columns)
        self._sql, self._names = str(compiled), tuple(compiled.positiontup)

    def run(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Once for each row. Raises the same exceptions as SQLAlchemy."""
        driver: Any = conn.connection.dbapi_connection
        try:
            driver.executemany(self._sql, [[row[name] for name in self._names] for row in rows])
        except sqlite3.Error as error:
            raise DBAPIError.instance(self._sql, None, error, sqlite3.Error, dialect=conn.dialect) from error


# Built once: building a statement takes longer than running it.
_STATES = select(_jobs.c.id, _jobs.c.state, _jobs.c.attempt, _jobs.c.dispatched).where(
    _jobs.c.id.in_(bindparam("ids", expanding=True))
)
_ADD_JOBS, _ADD_EVENTS = PreparedStatement(insert(_jobs)), PreparedStatement(insert(_events))
_ADD_ATTEMPTS = PreparedStatement(
    insert(_attempts), ("job_id", "number", "node", "devices", "places", "gpu_type", "state", "created_at")
)


@dataclass(frozen=True, slots=True)
class JobTransition:
    """A requested change of a job's state, applied only if the state machine and the attempt number allow it."""

    job_id: JobId
    to_state: JobState
    event_kind: str  # of the recorded event
    at: datetime
    attempt: int | None = None  # applied only while this is the newest attempt
    values: Mapping[str, Any] = field(default_factory=dict)  # other columns to set
    detail: str | None = None
    exit_code: int | None = None  # of the attempt, if the job is requeued and has none itself


def add_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    _ADD_JOBS.run(tx.conn, [job_to_row(job) for job in jobs])
    tx.changes.added_jobs += jobs
    _add_events(tx, [(job.id, 0, job.submitted_at, "submitted", job.state, None) for job in jobs])


def apply_transitions(tx: Transaction, requested: Iterable[JobTransition]) -> list[JobTransition]:
    """Apply the transitions that are allowed now; return these. A changed job is no longer in an engine's queue.

    Jobs that depend on a job that ends here are updated in the same transaction: they have one parent less, or are
    cancelled; and so are the jobs that depend on these, in any depth.
    """
    done = _apply_allowed(tx, requested)
    ended = [transition for transition in done if transition.to_state in TERMINAL_STATES]
    decider = workflow_start_decisions.WorkflowStartDecider(tx)
    while ended:
        ended = _apply_allowed(
            tx, [transition for parent in ended for transition in _settle_children(tx, parent, decider)]
        )
    return done


def _apply_allowed(tx: Transaction, requested: Iterable[JobTransition]) -> list[JobTransition]:
    """A job with two transitions is read once and written once."""
    transitions = list(requested)
    jobs = _read_states(tx, [transition.job_id for transition in transitions])
    done: list[JobTransition] = []
    events = []
    for transition in transitions:
        job = jobs.get(transition.job_id)
        if (
            job is None
            or not job.accepts(transition.attempt)
            or not may_transition(job.state, transition.to_state)
        ):
            continue
        _remove_from_engine_queue(tx, job, transition)
        job.state = transition.to_state
        job.attempt = transition.values.get("attempt", job.attempt)
        job.values.update(transition.values)
        job.values["state"] = transition.to_state
        events.append(
            (
                transition.job_id,
                job.attempt,
                transition.at,
                transition.event_kind,
                transition.to_state,
                transition.detail,
            )
        )
        done.append(transition)
    update_jobs(tx, [(job_id, job.values) for job_id, job in jobs.items() if job.values])
    _add_events(tx, events)
    return done


@dataclass(slots=True)
class _ChangingJob:
    """A job while its transitions are applied: its state after the last one, and the changed values."""

    state: JobState
    attempt: int
    dispatched: bool
    values: dict[str, Any] = field(default_factory=dict)

    def accepts(self, attempt: int | None) -> bool:
        """Whether a transition of this attempt applies: only of the newest one, and not of a held job. None: it is
        independent of attempts."""
        return attempt is None or (attempt == self.attempt and self.state is not JobState.HELD)


def _read_states(tx: Transaction, ids: Iterable[JobId]) -> dict[JobId, _ChangingJob]:
    return {
        row.id: _ChangingJob(JobState(row.state), row.attempt, row.dispatched)
        for batch in query_batches(sorted(set(ids)))
        for row in tx.conn.execute(_STATES, {"ids": batch})
    }


def _remove_from_engine_queue(tx: Transaction, job: _ChangingJob, transition: JobTransition) -> None:
    """Any transition ends the state `dispatched`."""
    if not job.dispatched:
        return
    job.dispatched, job.values["dispatched"] = False, False
    if transition.to_state in (JobState.CANCELLED, JobState.HELD):
        ended = {"state": JobState.CANCELLED, "ended_at": transition.at, "reason": transition.detail}
        update_attempt(tx, transition.job_id, job.attempt, ended)


def _settle_children(
    tx: Transaction, parent: JobTransition, decider: workflow_start_decisions.WorkflowStartDecider
) -> list[JobTransition]:
    """Update the jobs that depend on an ended one; return the ends of those that cannot start."""
    broken: list[JobTransition] = []
    children = dependencies.take_unsettled_children(tx, parent.job_id)
    jobs = _read_states(tx, [child.job_id for child in children])
    for child in children:
        state = jobs[child.job_id].state
        if state in TERMINAL_STATES:
            continue
        decision = (
            decider.decide_job(child.job_id) if child.condition is DependencyCondition.WORKFLOW_DECIDES else None
        )
        if decision is not None and decision.outcome is not None:
            broken.append(cancellation_transition(decision.reason, child.job_id, parent.at))
            continue
        if child.condition.is_met_by(parent.to_state):
            _settle_parent(tx, child.job_id, jobs[child.job_id], parent)
            continue
        if child.condition is DependencyCondition.BUILT:
            broken.append(_failed_build_transition(parent, child.job_id))
            continue
        reason = describe_broken_dependency(parent.job_id, parent.to_state)
        broken.append(cancellation_transition(reason, child.job_id, parent.at))
    return broken


def cancellation_transition(
    reason: str | None, job_id: JobId, at: datetime, waited_seconds: float | None = None
) -> JobTransition:
    """Of a waiting job that cannot start. `waited_seconds`: in the queue; None: no more than is stored."""
    values: dict[str, Any] = {"ended_at": at, "reason": reason}
    if waited_seconds is not None:
        values["waited_seconds"] = waited_seconds
    return JobTransition(job_id, JobState.CANCELLED, "ended", at, None, values, reason)


def _failed_build_transition(build: JobTransition, job_id: JobId) -> JobTransition:
    """Of a job whose environment was not built: it fails for the reason of the build, or is cancelled with it."""
    reason = build.detail or ""
    if not reason.startswith(BUILD_FAILURE_PREFIX):
        reason = f"{BUILD_FAILURE_PREFIX}job {build.job_id} {describe_end(build.to_state)}"
    cancelled = cancellation_transition(reason, job_id, build.at)
    return cancelled if build.to_state is JobState.CANCELLED else replace(cancelled, to_state=JobState.FAILED)


def _settle_parent(tx: Transaction, child: JobId, job: _ChangingJob, parent: JobTransition) -> None:
    left = dependencies.count_unsettled_parents(tx.conn, child)
    values: dict[str, Any] = {"parents_left": left}
    if not left and job.state is JobState.PENDING:
        values["waits_since"] = parent.at  # waiting for a parent does not count
    update_job(tx, child, values)
    if not left and job.state in WAITING_STATES:
        detail = f"job {parent.job_id} {describe_end(parent.to_state)}"
        _add_events(tx, [(child, job.attempt, parent.at, "parents_over", job.state, detail)])


def update_job(tx: Transaction, job_id: JobId, values: dict[str, Any]) -> None:
    """Set fields of a job. Its state only after the transition was checked."""
    update_jobs(tx, [(job_id, values)])


def update_jobs(tx: Transaction, changed: Sequence[tuple[JobId, dict[str, Any]]]) -> None:
    """Like `update_job`, for many jobs."""
    _update_rows(tx, _jobs, ("id",), [((job_id,), values) for job_id, values in changed])
    tx.changes.changed_jobs += changed


def add_job_event(tx: Transaction, job: Job, kind: str, detail: str | None, at: datetime) -> None:
    """An event without a change of state."""
    _add_events(tx, [(job.id, job.attempt, at, kind, job.state, detail)])


def add_attempts(tx: Transaction, attempts: Sequence[Attempt], at: datetime) -> None:
    rows = [
        {
            "job_id": attempt.job.id,
            "number": attempt.job.attempt,
            "node": attempt.node,
            "devices": to_column_value(attempt.devices),
            "places": placements_to_text(attempt.places),
            "gpu_type": attempt.gpu_type,
            "state": JobState.STARTING.value,
            "created_at": to_timestamp(at),
        }
        for attempt in attempts
    ]
    _ADD_ATTEMPTS.run(tx.conn, rows)


def update_attempt(tx: Transaction, job_id: JobId, number: int, values: dict[str, Any]) -> None:
    update_attempts(tx, [((job_id, number), values)])


def update_attempts(tx: Transaction, changed: Sequence[tuple[tuple[JobId, int], dict[str, Any]]]) -> None:
    _update_rows(tx, _attempts, ("job_id", "number"), changed)


def remove_old_idempotency_keys(tx: Transaction, before: datetime) -> None:
    keys = schema.idempotency_keys
    tx.conn.execute(delete(keys).where(keys.c.created_at < to_timestamp(before)))


def _update_rows(
    tx: Transaction,
    table: Table,
    keys: tuple[str, ...],
    changed: Sequence[tuple[tuple[int, ...], dict[str, Any]]],
) -> None:
    """Rows with the same changed columns are written together."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for key, values in changed:
        row = {name: to_column_value(value) for name, value in values.items()}
        row.update(zip((f"key_{name}" for name in keys), key, strict=True))
        by_columns.setdefault(tuple(values), []).append(row)
    for columns, rows in by_columns.items():
        _update(table, keys, columns).run(tx.conn, rows)


@cache
def _update(table: Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> PreparedStatement:
    statement = update(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in keys))
    return PreparedStatement(statement.values({name: bindparam(name) for name in columns}))


def _add_events(tx: Transaction, events: Sequence[tuple[JobId, int, datetime, str, JobState, str | None]]) -> None:
    if not events:
        return
    ids = tx.ids.allocate("events", len(events))
    added = [
        JobEvent(event_id, job_id, attempt, at, kind, state, detail)
        for event_id, (job_id, attempt, at, kind, state, detail) in zip(ids, events, strict=True)
    ]
    _ADD_EVENTS.run(tx.conn, [event_to_row(event) for event in added])
    tx.changes.events += added
