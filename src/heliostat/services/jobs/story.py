"""What happened to one job: its attempts and its events."""

from dataclasses import dataclass, field

from heliostat.models import AttemptRecord, Caller, Job, JobEvent, JobId
from heliostat.models.nodes import Device
from heliostat.models.schedules import Origin
from heliostat.services.context import Context
from heliostat.services.jobs.families import Family, family_of
from heliostat.services.rights import inspectable_job
from heliostat.store import jobs as stored
from heliostat.store.schedules import origin_of

MOST_EVENTS = 500


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
