"""Whom a job waits or waited for, and who waits for it."""

from dataclasses import dataclass

from sqlalchemy import Connection

from heliostat.models import Job, JobId, Rule
from heliostat.store import dependencies
from heliostat.store.jobs import listed_jobs

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Family:
    """The first parents and children of a job, oldest first, without their specs."""

    parents: tuple[tuple[Job, Rule], ...] = ()
    parent_count: int = 0
    children: tuple[tuple[Job, Rule], ...] = ()
    child_count: int = 0


def family_of(conn: Connection, job: Job, most: int = MOST_SHOWN) -> Family:
    children = dependencies.children_of(conn, job.id, most)
    count = len(children) if len(children) < most else dependencies.count_children(conn, job.id)
    ids: set[JobId] = {one.parent for one in job.after[:most]} | {child.job_id for child in children}
    if not ids:
        return Family()
    jobs = listed_jobs(conn, ids)
    return Family(
        tuple((jobs[one.parent], one.rule) for one in job.after[:most] if one.parent in jobs),
        len(job.after),
        tuple((jobs[child.job_id], child.rule) for child in children if child.job_id in jobs),
        count,
    )
