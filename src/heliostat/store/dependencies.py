"""Which job waits for which. `moves` tells children of their parents' ends, in the same transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, func, insert, select, update

from heliostat.models import Dependency, DependencyCondition, Job, JobId
from heliostat.store import schema
from heliostat.store.database import Transaction

_edges = schema.dependencies
# Built once: to build one of them takes longer than to run it.
_IS_OPEN_CHILD = and_(_edges.c.parent_id == bindparam("parent"), ~_edges.c.is_settled)
_OPEN_CHILDREN = select(_edges.c.job_id, _edges.c.rule).where(_IS_OPEN_CHILD).order_by(_edges.c.job_id)
_SETTLE = update(_edges).where(_IS_OPEN_CHILD).values(is_settled=True)
_LEFT = select(func.count()).where(_edges.c.job_id == bindparam("job"), ~_edges.c.is_settled)


class ChildDependency(NamedTuple):
    job_id: JobId
    condition: DependencyCondition


def add_dependencies(tx: Transaction, jobs: Sequence[Job], settled: set[Dependency]) -> None:
    """Of jobs that have just been added; the settled ones were met before."""
    rows = [
        {"job_id": job.id, "parent_id": one.parent_id, "rule": one.condition.value, "is_settled": one in settled}
        for job in jobs
        for one in job.after
    ]
    if rows:
        tx.conn.execute(insert(_edges), rows)


def take_unsettled_children(tx: Transaction, parent: JobId) -> list[ChildDependency]:
    """Those that have not been told of its end, each once: from now on they have."""
    found = [
        ChildDependency(row.job_id, DependencyCondition(row.rule))
        for row in tx.conn.execute(_OPEN_CHILDREN, {"parent": parent})
    ]
    if found:
        tx.conn.execute(_SETTLE, {"parent": parent})
    return found


def count_unsettled_parents(conn: Connection, job_id: JobId) -> int:
    return conn.execute(_LEFT, {"job": job_id}).scalar_one()


def list_children(conn: Connection, parent: JobId, limit: int) -> list[ChildDependency]:
    """All that wait or waited for it, oldest first."""
    query = select(_edges.c.job_id, _edges.c.rule).where(_edges.c.parent_id == parent)
    rows = conn.execute(query.order_by(_edges.c.job_id).limit(limit))
    return [ChildDependency(job_id, DependencyCondition(rule)) for job_id, rule in rows]


def count_children(conn: Connection, parent: JobId) -> int:
    return conn.execute(select(func.count()).where(_edges.c.parent_id == parent)).scalar_one()
