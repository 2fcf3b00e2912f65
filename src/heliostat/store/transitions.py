"""Changing jobs and attempts: every move is checked against the state it finds, and told as an event."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
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
from heliostat.store.rows import event_to_row, job_to_row, placements_to_text, to_column_value
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts, _events = schema.jobs, schema.attempts, schema.events


class PreparedStatement:
    """A statement that writes rows of jobs, compiled once and handed straight to the driver. Values are stored as
    they are given. `columns`: those that an insert sets; None: all.

    Every job is written a dozen times on its way through the queue. Through SQLAlchemy that takes half a
    millisecond more for each job, while nobody else can write.
    """

    def __init__(self, statement: Insert | Update, columns: Sequence[str] | None = None) -> None:
        compiled: Any = statement.compile(dialect=sqlite.dialect(), column_keys=columns)
        self._sql, self._names = str(compiled), tuple(compiled.positiontup)

    def run(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Once for each row. Raises what SQLAlchemy would."""
        driver: Any = conn.connection.dbapi_connection
        try:
            driver.executemany(self._sql, [[row[name] for name in self._names] for row in rows])
        except sqlite3.Error as error:
            raise DBAPIError.instance(self._sql, None, error, sqlite3.Error, dialect=conn.dialect) from error


# Built once: to build one of them takes longer than to run it.
_STATES = select(_jobs.c.id, _jobs.c.state, _jobs.c.attempt, _jobs.c.dispatched).where(
    _jobs.c.id.in_(bindparam("ids", expanding=True))
)
_ADD_JOBS, _ADD_EVENTS = PreparedStatement(insert(_jobs)), PreparedStatement(insert(_events))
_ADD_ATTEMPTS = PreparedStatement(
    insert(_attempts), ("job_id", "number", "node", "devices", "places", "gpu_type", "state", "created_at")
)


@dataclass(frozen=True, slots=True)
class JobTransition:
    """A wish to change a job's state. It happens only if the state machine and the fence allow it."""

    job_id: JobId
    to_state: JobState
    event_kind: str  # of the event that tells of it
    at: datetime
    attempt: int | None = None  # the fence: only while this is the newest attempt
    values: Mapping[str, Any] = field(default_factory=dict)  # other columns to set
    detail: str | None = None
    exit_code: int | None = None  # of the attempt, where the job goes back to the queue and has none


def add_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    _ADD_JOBS.run(tx.conn, [job_to_row(job) for job in jobs])
    tx.changes.added_jobs += jobs
    _add_events(tx, [(job.id, 0, job.submitted_at, "submitted", job.state, None) for job in jobs])


def apply_transitions(tx: Transaction, moves: Iterable[JobTransition]) -> list[JobTransition]:
    """Carry out the moves that are allowed now; return those. Whoever moves is no longer in an engine's queue.

    Those who wait for a job that ends here learn of it in the same transaction: they come one step nearer to their
    start, or are cancelled; and so do those who wait for them, however many follow one another.
    """
    done = _move_those_allowed(tx, moves)
    ended = [move for move in done if move.to_state in TERMINAL_STATES]
    opening = workflow_start_decisions.WorkflowStartDecider(tx)
    while ended:
        ended = _move_those_allowed(tx, [move for parent in ended for move in _tell_children(tx, parent, opening)])
    return done


def _move_those_allowed(tx: Transaction, moves: Iterable[JobTransition]) -> list[JobTransition]:
    """A job that moves twice is looked up once and written once."""
    wanted = list(moves)
    found = _moving(tx, [move.job_id for move in wanted])
    done: list[JobTransition] = []
    told = []
    for move in wanted:
        moving = found.get(move.job_id)
        if moving is None or not moving.heeds(move.attempt) or not may_transition(moving.state, move.to_state):
            continue
        _take_back_from_engine(tx, moving, move)
        moving.state = move.to_state
        moving.attempt = move.values.get("attempt", moving.attempt)
        moving.values.update(move.values)
        moving.values["state"] = move.to_state
        told.append((move.job_id, moving.attempt, move.at, move.event_kind, move.to_state, move.detail))
        done.append(move)
    update_jobs(tx, [(job_id, moving.values) for job_id, moving in found.items() if moving.values])
    _add_events(tx, told)
    return done


@dataclass(slots=True)
class _Moving:
    """A job while its moves are gone through: as it is after the last of them, and what has changed."""

    state: JobState
    attempt: int
    dispatched: bool
    values: dict[str, Any] = field(default_factory=dict)

    def heeds(self, attempt: int | None) -> bool:
        """The word of this attempt: only of the newest one, and not once somebody holds the job. None: it is of no
        attempt."""
        return attempt is None or (attempt == self.attempt and self.state is not JobState.HELD)


def _moving(tx: Transaction, ids: Iterable[JobId]) -> dict[JobId, _Moving]:
    """As these jobs are now, by their number."""
    return {
        row.id: _Moving(JobState(row.state), row.attempt, row.dispatched)
        for some in query_batches(sorted(set(ids)))
        for row in tx.conn.execute(_STATES, {"ids": some})
    }


def _take_back_from_engine(tx: Transaction, moving: _Moving, move: JobTransition) -> None:
    """Whoever moves is no longer in an engine's queue."""
    if not moving.dispatched:
        return
    moving.dispatched, moving.values["dispatched"] = False, False
    if move.to_state in (JobState.CANCELLED, JobState.HELD):
        ended = {"state": JobState.CANCELLED, "ended_at": move.at, "reason": move.detail}
        update_attempt(tx, move.job_id, moving.attempt, ended)


def _tell_children(
    tx: Transaction, parent: JobTransition, opening: workflow_start_decisions.WorkflowStartDecider
) -> list[JobTransition]:
    """That it is over; who can no longer start is to be cancelled."""
    broken: list[JobTransition] = []
    children = dependencies.take_unsettled_children(tx, parent.job_id)
    found = _moving(tx, [child.job_id for child in children])
    for child in children:
        state = found[child.job_id].state
        if state in TERMINAL_STATES:
            continue
        verdict = (
            opening.decide_job(child.job_id) if child.condition is DependencyCondition.WORKFLOW_DECIDES else None
        )
        if verdict is not None and verdict.outcome is not None:
            broken.append(cancellation_transition(verdict.reason, child.job_id, parent.at))
            continue
        if child.condition.is_met_by(parent.to_state):
            _come_nearer(tx, child.job_id, found[child.job_id], parent)
            continue
        broken.append(cancellation_transition(_why_broken(parent), child.job_id, parent.at))
    return broken


def cancellation_transition(reason: str | None, job_id: JobId, at: datetime) -> JobTransition:
    """Of one that waits: it is not to start."""
    values = {"ended_at": at, "reason": reason}
    return JobTransition(job_id, JobState.CANCELLED, "ended", at, None, values, reason)


def _why_broken(parent: JobTransition) -> str:
    """Whose environment cannot be built wants to know why, not which job has tried."""
    if parent.detail is not None and parent.detail.startswith(BUILD_FAILURE_PREFIX):
        return parent.detail
    return describe_broken_dependency(parent.job_id, parent.to_state)


def _come_nearer(tx: Transaction, child: JobId, found: _Moving, parent: JobTransition) -> None:
    left = dependencies.count_unsettled_parents(tx.conn, child)
    values: dict[str, Any] = {"parents_left": left}
    if not left and found.state is JobState.PENDING:
        values["waits_since"] = parent.at  # what passed until now was no waiting in line
    update_job(tx, child, values)
    if not left and found.state in WAITING_STATES:
        detail = f"job {parent.job_id} {describe_end(parent.to_state)}"
        _add_events(tx, [(child, found.attempt, parent.at, "parents_over", found.state, detail)])


def update_job(tx: Transaction, job_id: JobId, values: dict[str, Any]) -> None:
    """Set fields of a job that are not its state, or its state once a move is known to be allowed."""
    update_jobs(tx, [(job_id, values)])


def update_jobs(tx: Transaction, wanted: Sequence[tuple[JobId, dict[str, Any]]]) -> None:
    """The same of many."""
    _update_rows(tx, _jobs, ("id",), [((job_id,), values) for job_id, values in wanted])
    tx.changes.changed_jobs += wanted


def add_job_event(tx: Transaction, job: Job, kind: str, detail: str | None, at: datetime) -> None:
    """An event that changes no state."""
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


def update_attempts(tx: Transaction, wanted: Sequence[tuple[tuple[JobId, int], dict[str, Any]]]) -> None:
    """The same of many."""
    _update_rows(tx, _attempts, ("job_id", "number"), wanted)


def remove_old_idempotency_keys(tx: Transaction, before: datetime) -> None:
    keys = schema.idempotency_keys
    tx.conn.execute(delete(keys).where(keys.c.created_at < to_timestamp(before)))


def _update_rows(
    tx: Transaction,
    table: Table,
    keys: tuple[str, ...],
    wanted: Sequence[tuple[tuple[int, ...], dict[str, Any]]],
) -> None:
    """Rows of which the same columns change are written together."""
    by_columns: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for key, values in wanted:
        row = {name: to_column_value(value) for name, value in values.items()}
        row.update(zip((f"key_{name}" for name in keys), key, strict=True))
        by_columns.setdefault(tuple(values), []).append(row)
    for columns, rows in by_columns.items():
        _update(table, keys, columns).run(tx.conn, rows)


@cache
def _update(table: Table, keys: tuple[str, ...], columns: tuple[str, ...]) -> PreparedStatement:
    statement = update(table).where(*(table.c[name] == bindparam(f"key_{name}") for name in keys))
    return PreparedStatement(statement.values({name: bindparam(name) for name in columns}))


def _add_events(tx: Transaction, told: Sequence[tuple[JobId, int, datetime, str, JobState, str | None]]) -> None:
    if not told:
        return
    ids = tx.ids.allocate("events", len(told))
    added = [
        JobEvent(event_id, job_id, attempt, at, kind, state, detail)
        for event_id, (job_id, attempt, at, kind, state, detail) in zip(ids, told, strict=True)
    ]
    _ADD_EVENTS.run(tx.conn, [event_to_row(event) for event in added])
    tx.changes.events += added
