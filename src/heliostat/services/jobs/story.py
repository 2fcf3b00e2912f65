"""What happened to one job: its attempts, its events, whom it waited for and who waits for it."""

from dataclasses import dataclass, field

from sqlalchemy import Connection

from heliostat.models import AttemptRecord, Caller, Job, JobEvent, JobId, Rule
from heliostat.models.nodes import Device
from heliostat.models.schedules import Origin
from heliostat.services.context import Context
from heliostat.services.rights import inspectable_job
from heliostat.store import dependencies
from heliostat.store import jobs as stored
from heliostat.store.jobs import listed_jobs
from heliostat.store.schedules import origin_of

MOST_EVENTS = 500

MOST_SHOWN = 100


@dataclass(frozen=True, slots=True)
class Family:
    """The first parents and children of a job, oldest first, without their specs."""

    parents: tuple[tuple[Job, Rule], ...] = ()
    parent_count: int = 0
    children: tuple[tuple[Job, Rule], ...] = ()
    child_count: int = 0


@dataclass(frozen=True, slots=True)
class Story:
    """Oldest first. Of very many events the first ones."""

    job: Job
    attempts: tuple[AttemptRecord, ...]
    events: tuple[JobEvent, ...]
    family: Family = field(default_factory=Family)
    schedule: Origin | None = None


def job_story(context: Context, caller: Caller, job_id: JobId) -> Story:
    """For those who may inspect it."""
    job = inspectable_job(context, caller, job_id)
    with context.store.read() as conn:
        attempts = stored.attempts_of(conn, job_id)
        events = stored.list_events(conn, 0, MOST_EVENTS, job_id)
        family = family_of(conn, job)
        origin = origin_of(conn, job_id)
    return Story(job, tuple(attempts), tuple(events), family, origin)


def known_devices(context: Context) -> dict[str, Device]:
    """The GPUs of all nodes by uuid."""
    return {device.uuid: device for node in context.fleet.nodes() for device in node.devices}


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
