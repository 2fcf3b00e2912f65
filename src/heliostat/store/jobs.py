"""Jobs, their attempts and their events in the database: how to find them. `moves` changes them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, RowMapping, ScalarSelect, Select, bindparam, func, or_, select, union_all
from sqlalchemy.sql import ColumnElement

from heliostat.models import TERMINAL_STATES, AttemptRecord, Job, JobEvent, JobId, JobState
from heliostat.store import schema
from heliostat.store.database import query_batches
from heliostat.store.rows import (
    JOB_COLUMNS,
    JOB_COLUMNS_WITHOUT_SPEC,
    row_to_attempt,
    row_to_event,
    row_to_job,
    row_to_job_without_spec,
)
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts, _events = schema.jobs, schema.attempts, schema.events
_IS_WANTED = _jobs.c.id.in_(bindparam("ids", expanding=True))
_MAY_BE_CONTAINED = or_(_jobs.c.spec.contains('"image"'), _jobs.c.spec.contains('"mounts"'))
# Built once: to build one of them takes longer than to run it.
_JOBS = select(*JOB_COLUMNS).where(_IS_WANTED)
_CONTAINED = _JOBS.where(_MAY_BE_CONTAINED)
_LISTED = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_IS_WANTED)
_STANDINGS = select(_jobs.c.id, _jobs.c.user, _jobs.c.project, _jobs.c.state).where(_IS_WANTED)


@dataclass(frozen=True, slots=True)
class JobOwnerAndState:
    """Whose a job is and where it stands: a tenth of the work of reading all of it."""

    id: JobId
    user: str
    project: str
    state: JobState


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A job's number, or part of the name of a job whose name the searcher may know."""

    text: str
    user: str | None = None  # None: all names may be known
    projects: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None does not restrict."""

    states: Collection[JobState] | None = None
    user: str | None = None
    project: str | None = None
    name: str | None = None
    array_id: int | None = None
    node: str | None = None
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None
    search: JobSearch | None = None


def get_jobs(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """With their spec; ids that do not exist are left out."""
    return {row["id"]: row_to_job(row) for row in _rows(conn, _JOBS, ids)}


def get_jobs_without_spec(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Without their specs: a thousand scripts would be a gigabyte."""
    return {row["id"]: row_to_job_without_spec(row) for row in _rows(conn, _LISTED, ids)}


def get_container_jobs(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Those of these that have an image or mounts, with their specs; perhaps some more that only speak of it."""
    return {row["id"]: row_to_job(row) for row in _rows(conn, _CONTAINED, ids)}


def get_owners_and_states(conn: Connection, ids: Collection[JobId]) -> dict[JobId, JobOwnerAndState]:
    rows = _rows(conn, _STANDINGS, ids)
    return {
        row["id"]: JobOwnerAndState(row["id"], row["user"], row["project"], JobState(row["state"])) for row in rows
    }


def get_job(conn: Connection, job_id: JobId) -> Job | None:
    return get_jobs(conn, [job_id]).get(job_id)


def list_unfinished_jobs(conn: Connection) -> list[Job]:
    """All that are not over, oldest first, without their spec."""
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.ended_at.is_(None)).order_by(_jobs.c.id)
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def find_jobs_ended_before(conn: Connection, ids: Collection[JobId], before: datetime) -> set[JobId]:
    """Those of these jobs, not too many, that were over by then."""
    query = select(_jobs.c.id).where(_jobs.c.id.in_(list(ids)), _jobs.c.ended_at < to_timestamp(before))
    return set(conn.execute(query).scalars())


def list_jobs(conn: Connection, wanted: JobFilter, limit: int, before: JobId | None = None) -> list[Job]:
    """Newest first, without their spec, those with an id below `before`."""
    query = _filtered(select(*JOB_COLUMNS_WITHOUT_SPEC), wanted).order_by(_jobs.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(_jobs.c.id < before)
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


SORT_COLUMNS = {
    "id": _jobs.c.id,
    "user": _jobs.c.user,
    "project": _jobs.c.project,
    "gpus": _jobs.c.gpus,
    "ended_at": _jobs.c.ended_at,
}
"""What can be sorted by: each has an index."""


@dataclass(frozen=True, slots=True)
class JobListPage:
    """Which part of a list, in which order."""

    sort: str = "id"  # one of SORTS
    descending: bool = True
    offset: int = 0
    limit: int = 50


def list_jobs_page(conn: Connection, wanted: JobFilter, part: JobListPage) -> list[Job]:
    """Without their spec. Sorted by when they ended: only those that are over."""
    found = _ids_of_both_halves(wanted, part) if _is_mixed(wanted, part.sort) else _ids_in_order(wanted, part)
    # The ids first: skipping over whole rows would read them all.
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.id.in_(found)).order_by(*_order(part))
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def count_by_state(conn: Connection, wanted: JobFilter) -> dict[JobState, int]:
    """In two halves, each of which has an index."""
    counts: dict[JobState, int] = {}
    for is_over in (False, True):
        query = _half(select(_jobs.c.state, func.count()), wanted, is_over, _is_mixed(wanted))
        for state, count in conn.execute(query.group_by(_jobs.c.state)):
            counts[JobState(state)] = counts.get(JobState(state), 0) + count
    return counts


def count_unfinished_by_state(conn: Connection) -> dict[JobState, int]:
    query = select(_jobs.c.state, func.count()).where(_jobs.c.ended_at.is_(None)).group_by(_jobs.c.state)
    return {JobState(state): count for state, count in conn.execute(query)}


def count_unfinished_jobs_of_user(conn: Connection, user: str) -> int:
    query = select(func.count()).where(_jobs.c.ended_at.is_(None), _jobs.c.user == user)
    return conn.execute(query).scalar_one()


def list_attempts(conn: Connection, job_id: JobId) -> list[AttemptRecord]:
    query = select(_attempts).where(_attempts.c.job_id == job_id).order_by(_attempts.c.number)
    return [row_to_attempt(row) for row in conn.execute(query)]


def list_events(
    conn: Connection, after: int, limit: int, job_id: JobId | None = None, array_id: int | None = None
) -> list[JobEvent]:
    query = select(_events).where(_events.c.id > after).order_by(_events.c.id).limit(limit)
    if job_id is not None:
        query = query.where(_events.c.job_id == job_id)
    if array_id is not None:
        query = query.where(_events.c.job_id.in_(select(_jobs.c.id).where(_jobs.c.array_id == array_id)))
    return [row_to_event(row) for row in conn.execute(query)]


def last_event_id(conn: Connection) -> int:
    return conn.execute(select(func.max(_events.c.id))).scalar() or 0


def _rows(conn: Connection, query: Select[Any], ids: Collection[JobId]) -> Iterator[RowMapping]:
    for some in query_batches(sorted(set(ids))):
        yield from conn.execute(query, {"ids": some}).mappings()


def _ids_in_order(wanted: JobFilter, part: JobListPage) -> ScalarSelect[Any]:
    """Walks along the index of the order."""
    query = _filtered(select(_jobs.c.id), wanted).order_by(*_order(part)).limit(part.limit).offset(part.offset)
    return (query.where(_jobs.c.ended_at.is_not(None)) if part.sort == "ended_at" else query).scalar_subquery()


def _ids_of_both_halves(wanted: JobFilter, part: JobListPage) -> ScalarSelect[Any]:
    """Walks through all that are over in one index, and through the few others; then sorts."""
    is_over = [True] if part.sort == "ended_at" else [False, True]
    columns = select(_jobs.c.id, SORT_COLUMNS[part.sort].label("by"))
    both = union_all(*(_half(columns, wanted, half, True) for half in is_over)).subquery()
    order = [both.c.by.desc(), both.c.id.desc()] if part.descending else [both.c.by, both.c.id]
    return select(both.c.id).order_by(*order).limit(part.limit).offset(part.offset).scalar_subquery()


def _is_mixed(wanted: JobFilter, sort: str | None = None) -> bool:
    """No index has the filter and the order both, but `jobs_listed` holds all columns. None: to be counted."""
    others = (
        wanted.array_id,
        wanted.node,
        wanted.name,
        wanted.submitted_after,
        wanted.submitted_before,
    )
    if any(other is not None for other in others):
        return False
    if wanted.search is not None or wanted.project is not None:
        is_alone = wanted.search is None and wanted.states is None and wanted.user is None
        return not (is_alone and sort in ("id", "project"))
    return sort not in ("id", None) and (wanted.states is not None or wanted.user is not None)


def _half(query: Select[Any], wanted: JobFilter, is_over: bool, in_one_index: bool) -> Select[Any]:
    ended = _jobs.c.ended_at
    query = _filtered(query, wanted).where(ended.is_not(None) if is_over else ended.is_(None))
    # Left alone, SQLite takes an index of the order and looks up each row, which takes ten times as long.
    return query.with_hint(_jobs, "INDEXED BY jobs_listed", "sqlite") if is_over and in_one_index else query


def _order(part: JobListPage) -> list[Any]:
    columns = [SORT_COLUMNS[part.sort]] if part.sort == "id" else [SORT_COLUMNS[part.sort], _jobs.c.id]
    return [column.desc() if part.descending else column.asc() for column in columns]


def _found(search: JobSearch) -> ColumnElement[bool]:
    named = _jobs.c.name.contains(search.text, autoescape=True)
    if search.user is not None:
        named = named & or_(_jobs.c.user == search.user, _jobs.c.project.in_(list(search.projects)))
    if not (search.text.isascii() and search.text.isdecimal() and len(search.text) < 16):
        return named
    return or_(_jobs.c.id == int(search.text), named)


def _filtered(query: Select[Any], wanted: JobFilter) -> Select[Any]:
    if wanted.states is not None:
        query = query.where(_jobs.c.state.in_([state.value for state in wanted.states]))
        # Each half has an index of its own, which a job enters once and does not move in with each state.
        if TERMINAL_STATES.isdisjoint(wanted.states):
            query = query.where(_jobs.c.ended_at.is_(None))
        elif TERMINAL_STATES.issuperset(wanted.states):
            query = query.where(_jobs.c.ended_at.is_not(None))
    if wanted.name is not None:
        query = query.where(_jobs.c.name.contains(wanted.name, autoescape=True))
    if wanted.search is not None:
        query = query.where(_found(wanted.search))
    if wanted.submitted_after is not None:
        query = query.where(_jobs.c.submitted_at >= to_timestamp(wanted.submitted_after))
    if wanted.submitted_before is not None:
        query = query.where(_jobs.c.submitted_at < to_timestamp(wanted.submitted_before))
    for name in ("user", "project", "array_id", "node"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(_jobs.c[name] == value)
    return query
