"""Metrics that jobs report: those of running jobs from their files, those of ended jobs from the database."""

from collections.abc import Iterable

from sqlalchemy import Connection

from heliostat.controller.job_results import read_metrics
from heliostat.models import ACTIVE_STATES, Job, JobId
from heliostat.models.workflows import Metric
from heliostat.services.context import Context
from heliostat.store import workflows as stored

JobMetrics = dict[str, Metric]
_MAX_LIVE = 200  # running jobs whose files are read for one view


def get_metrics(context: Context, conn: Connection, jobs: Iterable[Job]) -> dict[JobId, JobMetrics]:
    """By job and name. The caller must be allowed to inspect the jobs."""
    every = list(jobs)
    found = stored.get_job_metrics(conn, [job.id for job in every])
    live = [job.id for job in every if job.state in ACTIVE_STATES][:_MAX_LIVE]
    return found | {job_id: read_metrics(context.engine, job_id) for job_id in live}


def get_metrics_of(context: Context, job: Job) -> JobMetrics:
    """By name."""
    with context.store.read() as conn:
        return get_metrics(context, conn, [job]).get(job.id, {})
