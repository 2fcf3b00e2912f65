"""Queries for jobs, attempts and events. `job_writes` changes them."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import (
    Connection,
    RowMapping,
    ScalarSelect,
    Select,
    bindparam,
    func,
    literal_column,
    or_,
    select,
    union_all,
)
from sqlalchemy.sql import ColumnElement

from heliostat.models import TERMINAL_STATES, AttemptRecord, Job, JobEvent, JobId, JobState
from heliostat.store import schema
from heliostat.store.database import query_batches
from heliostat.store.job_rows import (
    JOB_COLUMNS,
    JOB_COLUMNS_WITHOUT_SPEC,
    row_to_attempt,
    row_to_event,
    row_to_job,
    row_to_job_without_spec,
)
from heliostat.store.timestamps import to_timestamp

_jobs, _attempts, _events = schema.jobs, schema.attempts, schema.events
_MAX_RECENT, _MAX_RECENT_COMPLETED = 300, 50
_HAS_ID = _jobs.c.id.in_(bindparam("ids", expanding=True))
_MAY_USE_CONTAINER = or_(_jobs.c.spec.contains('"image"'), _jobs.c.spec.contains('"mounts"'))
# Built once: building a statement takes longer than running it.
_JOBS = select(*JOB_COLUMNS).where(_HAS_ID)
_CONTAINER_JOBS = _JOBS.where(_MAY_USE_CONTAINER)
_JOBS_WITHOUT_SPEC = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_HAS_ID)
_OWNERS_AND_STATES = select(_jobs.c.id, _jobs.c.user, _jobs.c.project, _jobs.c.state).where(_HAS_ID)


@dataclass(frozen=True, slots=True)
class JobOwnerAndState:
    """Owner, project and state of a job: ten times faster to read than the whole job."""

    id: JobId
    user: str
    project: str
    state: JobState


@dataclass(frozen=True, slots=True)
class JobSearch:
    """A job number, or part of a job name that the user may see."""

    text: str
    user: str | None = None  # None: all names are visible
    projects: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: no restriction."""

    states: Collection[JobState] | None = None
    user: str | None = None
    project: str | None = None
    name: str | None = None
    array_id: int | None = None
    node: str | None = None
    submitted_after: datetime | None = None
    submitted_before: datetime | None = None
    ended_after: datetime | None = None
    search: JobSearch | None = None
    newest_replicas: bool = False  # of the ended replicas of a service, only the newest


def _older_replicas() -> Select[Any]:
    """Ids of ended replicas of services, except the newest of each service. Uses the index `jobs_of_services`."""
    replicas = _jobs.alias("replicas")
    rank = func.row_number().over(partition_by=(replicas.c.user, replicas.c.name), order_by=replicas.c.id.desc())
    ended = (replicas.c.kind == literal_column("'service'")) & replicas.c.ended_at.is_not(None)
    ranked = select(replicas.c.id, rank.label("rank")).where(ended).subquery("ranked")
    return select(ranked.c.id).where(ranked.c.rank > 1)


_OLDER_REPLICAS = _older_replicas()


def get_jobs(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """With their spec; unknown ids are ignored."""
    return {row["id"]: row_to_job(row) for row in _rows(conn, _JOBS, ids)}


def get_jobs_without_spec(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Without their specs: a thousand scripts would be a gigabyte."""
    return {row["id"]: row_to_job_without_spec(row) for row in _rows(conn, _JOBS_WITHOUT_SPEC, ids)}


def get_container_jobs(conn: Connection, ids: Collection[JobId]) -> dict[JobId, Job]:
    """Jobs with an image or mounts, with their specs; possibly more jobs whose spec contains these words."""
    return {row["id"]: row_to_job(row) for row in _rows(conn, _CONTAINER_JOBS, ids)}


def get_owners_and_states(conn: Connection, ids: Collection[JobId]) -> dict[JobId, JobOwnerAndState]:
    rows = _rows(conn, _OWNERS_AND_STATES, ids)
    return {
        row["id"]: JobOwnerAndState(row["id"], row["user"], row["project"], JobState(row["state"])) for row in rows
    }


def get_job(conn: Connection, job_id: JobId) -> Job | None:
    return get_jobs(conn, [job_id]).get(job_id)


def list_unfinished_jobs(conn: Connection) -> list[Job]:
    """Oldest first, without their spec."""
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.ended_at.is_(None)).order_by(_jobs.c.id)
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def list_recently_completed_jobs(conn: Connection, user: str, min_run_seconds: float) -> list[Job]:
    """Completed batch jobs among the newest of a user that ran at least this long, newest first, without spec."""
    newest = select(_jobs.c.id).where(_jobs.c.user == user).order_by(_jobs.c.id.desc()).limit(_MAX_RECENT)
    query = (
        select(*JOB_COLUMNS_WITHOUT_SPEC)
        .where(_jobs.c.id.in_(newest.scalar_subquery()))
        .where(_jobs.c.state == JobState.COMPLETED.value, _jobs.c.kind == "batch", _jobs.c.origin.is_(None))
        .where(_jobs.c.ended_at - _jobs.c.started_at >= min_run_seconds)
        .order_by(_jobs.c.id.desc())
        .limit(_MAX_RECENT_COMPLETED)
    )
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def find_jobs_ended_before(conn: Connection, ids: Collection[JobId], before: datetime) -> set[JobId]:
    """For a limited number of ids."""
    query = select(_jobs.c.id).where(_jobs.c.id.in_(list(ids)), _jobs.c.ended_at < to_timestamp(before))
    return set(conn.execute(query).scalars())


def list_jobs(conn: Connection, job_filter: JobFilter, limit: int, before: JobId | None = None) -> list[Job]:
    """Newest first, without their spec, those with an id below `before`."""
    query = _filtered(select(*JOB_COLUMNS_WITHOUT_SPEC), job_filter).order_by(_jobs.c.id.desc()).limit(limit)
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
"""Columns for sorting: each has an index."""


@dataclass(frozen=True, slots=True)
class JobListPage:
    """A page of a list and its order."""

    sort: str = "id"  # one of SORT_COLUMNS
    descending: bool = True
    offset: int = 0
    limit: int = 50


def list_jobs_page(conn: Connection, job_filter: JobFilter, page: JobListPage) -> list[Job]:
    """Without their spec. Sorted by `ended_at`: only ended jobs."""
    ids = (
        _ids_of_both_halves(job_filter, page)
        if _is_mixed(job_filter, page.sort)
        else _ids_in_order(job_filter, page)
    )
    # The ids first: an offset over whole rows would read all of them.
    query = select(*JOB_COLUMNS_WITHOUT_SPEC).where(_jobs.c.id.in_(ids)).order_by(*_order(page))
    return [row_to_job_without_spec(row) for row in conn.execute(query).mappings()]


def count_by_state(conn: Connection, job_filter: JobFilter) -> dict[JobState, int]:
    """With one query for unfinished and one for ended jobs: each has an index."""
    counts: dict[JobState, int] = {}
    for is_ended in (False, True):
        query = _half(select(_jobs.c.state, func.count()), job_filter, is_ended, _is_mixed(job_filter))
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
    for batch in query_batches(sorted(set(ids))):
        yield from conn.execute(query, {"ids": batch}).mappings()


def _ids_in_order(job_filter: JobFilter, page: JobListPage) -> ScalarSelect[Any]:
    """Uses the index of the sort order."""
    query = _filtered(select(_jobs.c.id), job_filter).order_by(*_order(page)).limit(page.limit).offset(page.offset)
    return (query.where(_jobs.c.ended_at.is_not(None)) if page.sort == "ended_at" else query).scalar_subquery()


def _ids_of_both_halves(job_filter: JobFilter, page: JobListPage) -> ScalarSelect[Any]:
    """Reads all ended jobs from one index, and the few others; then sorts."""
    halves = [True] if page.sort == "ended_at" else [False, True]
    columns = select(_jobs.c.id, SORT_COLUMNS[page.sort].label("by"))
    both = union_all(*(_half(columns, job_filter, is_ended, True) for is_ended in halves)).subquery()
    order = [both.c.by.desc(), both.c.id.desc()] if page.descending else [both.c.by, both.c.id]
    return select(both.c.id).order_by(*order).limit(page.limit).offset(page.offset).scalar_subquery()


def _is_mixed(job_filter: JobFilter, sort: str | None = None) -> bool:
    """Whether no index serves both the filter and the order; `jobs_listed` has all columns. None: for counting."""
    others = (
        job_filter.array_id,
        job_filter.node,
        job_filter.name,
        job_filter.submitted_after,
        job_filter.submitted_before,
        job_filter.ended_after,
    )
    if any(other is not None for other in others):
        return False
    if job_filter.search is not None or job_filter.project is not None:
        is_alone = job_filter.search is None and job_filter.states is None and job_filter.user is None
        return not (is_alone and sort in ("id", "project"))
    return sort not in ("id", None) and (job_filter.states is not None or job_filter.user is not None)


def _half(query: Select[Any], job_filter: JobFilter, is_ended: bool, in_one_index: bool) -> Select[Any]:
    ended = _jobs.c.ended_at
    query = _filtered(query, job_filter).where(ended.is_not(None) if is_ended else ended.is_(None))
    # Without the hint, SQLite uses an index of the order and reads each row, which takes ten times as long.
    return query.with_hint(_jobs, "INDEXED BY jobs_listed", "sqlite") if is_ended and in_one_index else query


def _order(page: JobListPage) -> list[Any]:
    columns = [SORT_COLUMNS[page.sort]] if page.sort == "id" else [SORT_COLUMNS[page.sort], _jobs.c.id]
    return [column.desc() if page.descending else column.asc() for column in columns]


def _matches(search: JobSearch) -> ColumnElement[bool]:
    named = _jobs.c.name.contains(search.text, autoescape=True)
    if search.user is not None:
        named = named & or_(_jobs.c.user == search.user, _jobs.c.project.in_(list(search.projects)))
    if not (search.text.isascii() and search.text.isdecimal() and len(search.text) < 16):
        return named
    return or_(_jobs.c.id == int(search.text), named)


def _filtered(query: Select[Any], job_filter: JobFilter) -> Select[Any]:
    if job_filter.states is not None:
        query = query.where(_jobs.c.state.in_([state.value for state in job_filter.states]))
        # Unfinished and ended jobs have separate indexes, which do not change with every state.
        if TERMINAL_STATES.isdisjoint(job_filter.states):
            query = query.where(_jobs.c.ended_at.is_(None))
        elif TERMINAL_STATES.issuperset(job_filter.states):
            query = query.where(_jobs.c.ended_at.is_not(None))
    if job_filter.name is not None:
        query = query.where(_jobs.c.name.contains(job_filter.name, autoescape=True))
    if job_filter.search is not None:
        query = query.where(_matches(job_filter.search))
    if job_filter.submitted_after is not None:
        query = query.where(_jobs.c.submitted_at >= to_timestamp(job_filter.submitted_after))
    if job_filter.submitted_before is not None:
        query = query.where(_jobs.c.submitted_at < to_timestamp(job_filter.submitted_before))
    if job_filter.ended_after is not None:
        query = query.where(_jobs.c.ended_at >= to_timestamp(job_filter.ended_after))
    if job_filter.newest_replicas:
        query = query.where(_jobs.c.id.not_in(_OLDER_REPLICAS))
    for name in ("user", "project", "array_id", "node"):
        if (value := getattr(job_filter, name)) is not None:
            query = query.where(_jobs.c[name] == value)
    return query
