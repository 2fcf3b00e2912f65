"""Bring finished jobs into a store: for demonstrations, measurements and moves from another system."""

from collections.abc import Sequence

from sqlalchemy import insert

from heliostat.models import Job, JobEvent, JobState
from heliostat.store import schema
from heliostat.store.database import Transaction
from heliostat.store.rows import event_to_row, job_to_row
from heliostat.store.times import to_seconds


def add_finished_jobs(tx: Transaction, jobs: Sequence[Job]) -> None:
    """Jobs that are over, with one attempt each if they ever started. Their numbers are drawn by the caller."""
    tx.conn.execute(insert(schema.jobs), [job_to_row(job) for job in jobs])
    if started := [job for job in jobs if job.started_at is not None]:
        tx.conn.execute(insert(schema.attempts), [_attempt_row(job) for job in started])
    told = [event for job in jobs for event in _story(job)]
    numbers = tx.ids.draw("events", len(told))
    rows = [event_to_row(event) | {"id": number} for event, number in zip(told, numbers, strict=True)]
    tx.conn.execute(insert(schema.events), rows)


def _attempt_row(job: Job) -> dict[str, object]:
    row = job_to_row(job)
    same = ("node", "devices", "places", "gpu_type", "state", "started_at", "ended_at", "exit_code", "reason")
    created_at = to_seconds(job.started_at)
    return {"job_id": job.id, "number": 1, "created_at": created_at, **{name: row[name] for name in same}}


def _story(job: Job) -> list[JobEvent]:
    story = [JobEvent(0, job.id, 0, job.submitted_at, "submitted", JobState.PENDING)]
    if job.started_at is not None:
        story.append(JobEvent(0, job.id, 1, job.started_at, "running", JobState.RUNNING, job.node))
    if job.ended_at is not None:
        story.append(JobEvent(0, job.id, job.attempt, job.ended_at, "ended", job.state, job.reason))
    return story
