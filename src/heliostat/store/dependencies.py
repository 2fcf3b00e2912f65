"""Which job waits for which. `moves` tells children of their parents' ends, in the same transaction."""

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, func, insert, select, update

from heliostat.models import Dependency, Job, JobId, Rule
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.prepared import Prepared

_edges = schema.dependencies
_ADD = Prepared(insert(_edges))
_CHILDREN = Prepared(
    select(_edges.c.job_id, _edges.c.rule)
    .where(_edges.c.parent_id == bindparam("parent"), _edges.c.is_settled == bindparam("settled"))
    .order_by(_edges.c.job_id)
)
_SETTLE = Prepared(
    update(_edges)
    .where(_edges.c.parent_id == bindparam("parent"), _edges.c.is_settled == bindparam("before"))
    .values(is_settled=bindparam("after"))
)
_LEFT = Prepared(
    select(func.count())
    .select_from(_edges)
    .where(_edges.c.job_id == bindparam("job"), _edges.c.is_settled == bindparam("settled"))
)


class Child(NamedTuple):
    job_id: JobId
    rule: Rule


def add_dependencies(tx: Transaction, jobs: Sequence[Job], settled: set[Dependency]) -> None:
    """Of jobs that have just been added; the settled ones were met before."""
    rows = [
        {"job_id": job.id, "parent_id": one.parent, "rule": one.rule.value, "is_settled": one in settled}
        for job in jobs
        for one in job.after
    ]
    if rows:
        _ADD.run_many(tx.conn, rows)


def take_open_children(tx: Transaction, parent: JobId) -> list[Child]:
    """Those that have not been told of its end, each once: from now on they have."""
    found = _CHILDREN.all(tx.conn, {"parent": parent, "settled": False})
    if found:
        _SETTLE.run(tx.conn, {"parent": parent, "before": False, "after": True})
    return [Child(job_id, Rule(rule)) for job_id, rule in found]


def parents_left(conn: Connection, job_id: JobId) -> int:
    row = _LEFT.first(conn, {"job": job_id, "settled": False})
    return row[0] if row else 0


def children_of(conn: Connection, parent: JobId, limit: int) -> list[Child]:
    """All that wait or waited for it, oldest first."""
    query = select(_edges.c.job_id, _edges.c.rule).where(_edges.c.parent_id == parent)
    rows = conn.execute(query.order_by(_edges.c.job_id).limit(limit))
    return [Child(job_id, Rule(rule)) for job_id, rule in rows]


def count_children(conn: Connection, parent: JobId) -> int:
    return conn.execute(select(func.count()).where(_edges.c.parent_id == parent)).scalar_one()
