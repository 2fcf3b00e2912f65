"""History of a job: attempts, events, parents, children and the schedule that submitted it."""

from dataclasses import dataclass, field

from sqlalchemy import Connection

from heliostat.models import AttemptRecord, Caller, DependencyCondition, Job, JobEvent, JobId
from heliostat.models.nodes import Device
from heliostat.models.schedules import ScheduleOrigin
from heliostat.services.context import Context
from heliostat.services.permissions import require_inspectable_job
from heliostat.store import dependencies
from heliostat.store import jobs as stored
from heliostat.store.jobs import get_jobs_without_spec
from heliostat.store.schedules import find_schedule_origin

MAX_EVENTS = 500

MAX_DEPENDENCIES_SHOWN = 100


@dataclass(frozen=True, slots=True)
class DependencyView:
    """The first parents and children of a job, oldest first, without their specs."""

    parents: tuple[tuple[Job, DependencyCondition], ...] = ()
    parent_count: int = 0
    children: tuple[tuple[Job, DependencyCondition], ...] = ()
    child_count: int = 0


@dataclass(frozen=True, slots=True)
class JobHistory:
    """Oldest first; at most MAX_EVENTS events."""

    job: Job
    attempts: tuple[AttemptRecord, ...]
    events: tuple[JobEvent, ...]
    dependency_view: DependencyView = field(default_factory=DependencyView)
    schedule: ScheduleOrigin | None = None


def get_job_history(context: Context, caller: Caller, job_id: JobId) -> JobHistory:
    """For users who may inspect the job."""
    job = require_inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        attempts = stored.list_attempts(conn, job_id)
        events = stored.list_events(conn, 0, MAX_EVENTS, job_id)
        dependency_view = load_dependency_view(conn, job)
        origin = find_schedule_origin(conn, job_id)
    return JobHistory(job, tuple(attempts), tuple(events), dependency_view, origin)


def devices_by_uuid(context: Context) -> dict[str, Device]:
    """The GPUs of all nodes by uuid."""
    return {device.uuid: device for node in context.node_inventory.nodes() for device in node.devices}


def load_dependency_view(conn: Connection, job: Job, limit: int = MAX_DEPENDENCIES_SHOWN) -> DependencyView:
    children = dependencies.list_children(conn, job.id, limit)
    count = len(children) if len(children) < limit else dependencies.count_children(conn, job.id)
    ids: set[JobId] = {dependency.parent_id for dependency in job.after[:limit]} | {
        child.job_id for child in children
    }
    if not ids:
        return DependencyView()
    jobs = get_jobs_without_spec(conn, ids)
    return DependencyView(
        tuple(
            (jobs[dependency.parent_id], dependency.condition)
            for dependency in job.after[:limit]
            if dependency.parent_id in jobs
        ),
        len(job.after),
        tuple((jobs[child.job_id], child.condition) for child in children if child.job_id in jobs),
        count,
    )
