"""What a user's account keeps going: unfinished jobs, services and schedules."""

from dataclasses import dataclass

from heliostat.models import ACTIVE_STATES, Caller, JobId
from heliostat.models.schedules import ScheduleState
from heliostat.models.services import ServiceState
from heliostat.services.accounts.required_accounts import user_not_found
from heliostat.services.context import Context
from heliostat.services.permissions import require_admin
from heliostat.store import accounts, jobs, schedules, services


@dataclass(frozen=True, slots=True)
class OwnedWork:
    running_jobs: tuple[JobId, ...]
    waiting_jobs: tuple[JobId, ...]
    services: tuple[str, ...]  # names of those that are not stopped
    schedules: tuple[str, ...]  # names of those that are not disabled


def get_owned_work(context: Context, caller: Caller, user: str) -> OwnedWork:
    require_admin(caller.user)
    with context.store.read() as conn:
        if accounts.find_user(conn, user) is None:
            raise user_not_found(user)
        unfinished = [job for job in jobs.list_unfinished_jobs(conn) if job.user == user]
        active_services = [
            service.name
            for service in services.list_services(conn, user=user)
            if service.user == user and service.state is ServiceState.ACTIVE
        ]
        active_schedules = [
            schedule.name
            for schedule in schedules.list_schedules(conn, user=user)
            if schedule.state is ScheduleState.ACTIVE
        ]
    return OwnedWork(
        tuple(job.id for job in unfinished if job.state in ACTIVE_STATES),
        tuple(job.id for job in unfinished if job.state not in ACTIVE_STATES),
        tuple(active_services),
        tuple(active_schedules),
    )
