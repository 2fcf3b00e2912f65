"""Fills an empty database with the synthetic users and their jobs of the last month."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from heliostat.demo.accounts import DEPARTMENTS, PROJECTS, USERS, DemoUser
from heliostat.demo.jobs import DemoJob
from heliostat.demo.usage_samples import JobRun
from heliostat.demo.workload import generate_history
from heliostat.engines.simulated.cluster import demo_nodes
from heliostat.models import TERMINAL_STATES, Job, Membership, ProjectRole, Reservation, Role, User
from heliostat.store import accounts, projects_and_quotas
from heliostat.store.database import Store, Transaction
from heliostat.store.history import add_finished_jobs
from heliostat.store.nodes import add_reservation
from heliostat.store.projects_and_quotas import QuotaLevel, set_quota


@dataclass(frozen=True, slots=True)
class LastMonth:
    """The jobs of the last month, oldest first."""

    finished: list[Job]
    unfinished: list[DemoJob]

    def job_runs(self) -> Iterator[JobRun]:
        """Unfinished jobs have negative ids: they are submitted again, with other ids."""
        for job in self.finished:
            yield _job_run(job.id, job)
        for index, unfinished in enumerate(self.unfinished):
            yield _job_run(-index - 1, unfinished)


def fill_store(store: Store, seed: int, now: datetime) -> LastMonth:
    """Adds all users and their finished jobs."""
    jobs = generate_history(seed, now)
    finished = store.write(lambda tx: _add_everything(tx, jobs, now))
    return LastMonth(finished, [job for job in jobs if job.state not in TERMINAL_STATES])


def make_user(person: DemoUser, now: datetime) -> User:
    memberships = tuple(
        Membership(project, ProjectRole.MANAGER if project in person.managed_projects else ProjectRole.MEMBER)
        for project in person.projects
    )
    role = Role.ADMIN if person.is_admin else Role.USER
    return User(person.name, role, person.name, active=True, created_at=now, memberships=memberships)


def _add_everything(tx: Transaction, jobs: list[DemoJob], now: datetime) -> list[Job]:
    _add_rules(tx, now)
    for person in USERS:
        accounts.add_user(tx, make_user(person, now))
    finished = [job for job in jobs if job.state in TERMINAL_STATES]
    numbers = tx.ids.allocate("jobs", len(finished))
    arrays: dict[str, int] = {}
    for job in finished:
        if job.array_key is not None and job.array_key not in arrays:
            arrays[job.array_key] = tx.ids.allocate("arrays")[0]
    records = [_record(job, number, arrays) for job, number in zip(finished, numbers, strict=True)]
    add_finished_jobs(tx, records)
    return records


def _job_run(number: int, job: Job | DemoJob) -> JobRun:
    return JobRun(number, job.submitted_at, job.started_at, job.ended_at, job.resources, job.node, job.devices)


def _add_rules(tx: Transaction, now: datetime) -> None:
    """Shares, quotas and a reservation."""
    for project in PROJECTS:
        accounts.ensure_project(tx, project.name, project.department)
        projects_and_quotas.update_project(tx, project.name, share=project.share)
    for department in DEPARTMENTS:
        projects_and_quotas.set_department_share(tx, department.name, department.share)
        set_quota(tx, QuotaLevel.DEPARTMENT, department.name, department.quota)
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    begin = midnight + timedelta(days=5, hours=6)
    nodes = tuple(node.name for node in demo_nodes()[-2:])
    add_reservation(
        tx, Reservation("new-kernel", nodes, begin, begin + timedelta(hours=4), reason="kernel update")
    )


def _record(job: DemoJob, number: int, arrays: dict[str, int]) -> Job:
    return Job(
        id=number,
        kind="batch",
        name=job.name,
        state=job.state,
        user=job.user,
        unix_user=job.user,
        project=job.project,
        resources=job.resources,
        spec=job.make_spec(),
        submitted_at=job.submitted_at,
        time_limit_seconds=job.time_limit_seconds,
        array_id=arrays[job.array_key] if job.array_key is not None else None,
        array_index=job.array_index,
        attempt=0 if job.started_at is None else 1,
        node=job.node,
        devices=job.devices,
        started_at=job.started_at,
        ended_at=job.ended_at,
        exit_code=job.exit_code,
        reason=_reason(job),
        waited_seconds=((job.started_at or job.ended_at or job.submitted_at) - job.submitted_at).total_seconds(),
    )


def _reason(job: DemoJob) -> str | None:
    reasons = {
        "cancelled": f"cancelled by {job.user}",
        "timed_out": f"time limit reached ({job.time_limit_seconds} s)",
        "failed": f"exit code {job.exit_code}",
    }
    if job.out_of_memory and job.state.value == "failed":
        return f"out of memory: it used more than its {job.resources.memory_mib} MiB of memory"
    return reasons.get(job.state.value)
