"""Dependencies between jobs in the database. `job_writes` updates children when a parent ends."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from heliostat.models import Dependency, DependencyCondition, Job, JobId
from heliostat.store import schema
from heliostat.store.database import Transaction

_edges = schema.dependencies
# Built once: building a statement takes longer than running it.
_IS_OPEN_CHILD = and_(_edges.c.parent_id == bindparam("parent"), ~_edges.c.is_settled)
_OPEN_CHILDREN = select(_edges.c.job_id, _edges.c.rule).where(_IS_OPEN_CHILD).order_by(_edges.c.job_id)
_SETTLE = update(_edges).where(_IS_OPEN_CHILD).values(is_settled=True)
_COUNT_UNSETTLED = select(func.count()).where(_edges.c.job_id == bindparam("job"), ~_edges.c.is_settled)


class ChildDependency(NamedTuple):
    job_id: JobId
    condition: DependencyCondition


def add_dependencies(tx: Transaction, jobs: Sequence[Job], settled: set[Dependency]) -> None:
    """Of new jobs; the settled dependencies were met before."""
    rows = [
        {
            "job_id": job.id,
            "parent_id": dependency.parent_id,
            "rule": dependency.condition.value,
            "is_settled": dependency in settled,
        }
        for job in jobs
        for dependency in job.after
    ]
    if rows:
        tx.conn.execute(insert(_edges), rows)


def take_unsettled_children(tx: Transaction, parent: JobId) -> list[ChildDependency]:
    """Children that have not processed the end of this parent yet. They are marked as settled."""
    children = [
        ChildDependency(row.job_id, DependencyCondition(row.rule))
        for row in tx.conn.execute(_OPEN_CHILDREN, {"parent": parent})
    ]
    if children:
        tx.conn.execute(_SETTLE, {"parent": parent})
    return children


def count_unsettled_parents(conn: Connection, job_id: JobId) -> int:
    return conn.execute(_COUNT_UNSETTLED, {"job": job_id}).scalar_one()


def list_children(conn: Connection, parent: JobId, limit: int) -> list[ChildDependency]:
    """All jobs that wait or waited for it, oldest first."""
    query = select(_edges.c.job_id, _edges.c.rule).where(_edges.c.parent_id == parent)
    rows = conn.execute(query.order_by(_edges.c.job_id).limit(limit))
    return [ChildDependency(job_id, DependencyCondition(rule)) for job_id, rule in rows]


def count_children(conn: Connection, parent: JobId) -> int:
    return conn.execute(select(func.count()).where(_edges.c.parent_id == parent)).scalar_one()
