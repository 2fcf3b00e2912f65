"""Details of the job page: requested resources, placement, command, variables, actions and related jobs."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliostat.models import ACTIVE_STATES, DependencyCondition, Job, JobState, TaskLayout, User
from heliostat.models.nodes import Device
from heliostat.services.jobs.job_history import DependencyView
from heliostat.services.permissions import may_inspect, may_see_env_values
from heliostat.services.sessions.lifecycle import TOKEN_VARIABLE
from heliostat.web import formatting

_MAX_SCRIPT_CHARACTERS = 20_000
_MAX_RELATED = 20
_CONDITION_LABELS = {
    DependencyCondition.ANY: "after it ends in any state",
    DependencyCondition.FAILED: "only if it fails",
    DependencyCondition.BUILT: "builds its environment",
    DependencyCondition.WORKFLOW_DECIDES: "decided by the workflow",
}


@dataclass(frozen=True, slots=True)
class TaskPlacementRow:
    task: int
    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class EnvironmentVariable:
    name: str
    value: str | None  # None: hidden from this user


@dataclass(frozen=True, slots=True)
class JobDetails:
    requested: tuple[tuple[str, str], ...]
    task_placements: tuple[TaskPlacementRow, ...]
    is_gang: bool
    command: str
    script: str
    is_script_truncated: bool
    workdir: str  # empty: a new folder for the job
    unix_user: str
    variables: tuple[EnvironmentVariable, ...]
    are_values_hidden: bool


def build_job_details(job: Job, user: User, devices: Mapping[str, Device]) -> JobDetails:
    spec = job.spec
    script = spec.script or ""
    sees_values = may_see_env_values(user, job)
    return JobDetails(
        requested=tuple((label, value) for label, value in _requested(job) if value),
        task_placements=tuple(_place(number, job, devices) for number in range(len(job.task_placements))),
        is_gang=job.placement.tasks > 1,
        command=_format_command(spec.command),
        script=script[:_MAX_SCRIPT_CHARACTERS],
        is_script_truncated=len(script) > _MAX_SCRIPT_CHARACTERS,
        workdir=spec.workdir or "",
        unix_user=job.unix_user,
        variables=tuple(
            EnvironmentVariable(name, spec.env[name] if sees_values else None)
            for name in sorted(spec.env)
            if name != TOKEN_VARIABLE
        ),
        are_values_hidden=not sees_values,
    )


def _format_command(command: Sequence[str]) -> str:
    """A shell line unchanged; other commands quoted."""
    match command:
        case ["/bin/sh", "-c", line]:
            return line
        case _:
            return shlex.join(command)


@dataclass(frozen=True, slots=True)
class JobAction:
    verb: str
    label: str
    kind: str = "quiet"
    icon: str = ""


def available_actions(job: Job) -> tuple[JobAction, ...]:
    """Actions that are possible in the current state."""
    if job.is_terminal:
        return ()
    if job.state is JobState.HELD:
        return (JobAction("release", "Release", "main", "running"), _CANCEL)
    if job.state in ACTIVE_STATES and job.stop_requested:
        return () if job.stop_requested == "kill" else (JobAction("kill", "Kill", "danger", "cancelled"),)
    if job.state in ACTIVE_STATES:
        return (JobAction("requeue", "Requeue", icon="preempted"), _CANCEL)
    return (JobAction("hold", "Hold", icon="held"), _CANCEL)


_CANCEL = JobAction("cancel", "Cancel", "danger", "cancelled")


def _requested(job: Job) -> list[tuple[str, str]]:
    resources, placement = job.resources, job.placement
    limit = "none" if job.time_limit_seconds is None else formatting.format_duration(job.time_limit_seconds)
    priority_class = job.priority_class + (", preemptible" if job.preemptible else "")
    nodes = [
        "one per task" if placement.layout is TaskLayout.SPREAD and placement.tasks > 1 else "",
        "exclusive" if placement.exclusive else "",
        ", ".join(placement.labels),
        f"reservation {placement.reservation}" if placement.reservation else "",
    ]
    return [
        ("Tasks", f"{placement.tasks}; resources below are per task" if placement.tasks > 1 else ""),
        ("GPUs", _gpus(job)),
        ("CPUs", formatting.format_number(resources.cpus)),
        ("Memory", formatting.format_size(resources.memory_mib)),
        ("Nodes", ", ".join(text for text in nodes if text)),
        ("Time limit", limit + (", may be exceeded while no job needs the resources" if job.overtime else "")),
        ("Environment", (job.environment or "")[:12]),
        ("Image", job.spec.image or ""),
        ("Isolation", _isolation(job)),
        ("Mounts", ", ".join(map(str, job.spec.mounts))),
        ("Priority class", "" if priority_class == "normal" else priority_class),
        ("Priority", str(job.priority) if job.priority else ""),
        ("Not before", f"{job.begin_at:%Y-%m-%d %H:%M} UTC" if job.begin_at else ""),
        ("Retries", _retries(job)),
        ("Preempted", formatting.format_count(job.preemptions, "time") if job.preemptions else ""),
    ]


def _retries(job: Job) -> str:
    if not job.max_retries:
        return ""
    delay = (
        f", with a delay of at least {formatting.format_duration(job.retry.delay_seconds)}"
        if job.retry.delay_seconds
        else ""
    )
    return f"{job.retries} of {job.max_retries} used, after {', '.join(job.retry.on)}{delay}"


def _isolation(job: Job) -> str:
    spec = job.spec
    if not spec.uses_container:
        return ""
    return f"{spec.runtime or 'default'}{f', network {spec.network}' if spec.network else ''}"


def _gpus(job: Job) -> str:
    resources = job.resources
    if not resources.gpus:
        return "none"
    least = (
        f", at least {formatting.format_size(resources.gpu_memory_mib)} each" if resources.gpu_memory_mib else ""
    )
    return " ".join(filter(None, [formatting.format_number(resources.gpus), resources.gpu_type])) + least


def _place(number: int, job: Job, devices: Mapping[str, Device]) -> TaskPlacementRow:
    place = job.task_placements[number]
    return TaskPlacementRow(number, place.node, tuple(_device(uuid, devices.get(uuid)) for uuid in place.devices))


def _device(uuid: str, device: Device | None) -> str:
    return uuid if device is None else f"GPU {device.number}, {device.type}"


@dataclass(frozen=True, slots=True)
class RelatedJob:
    id: int
    state: str
    condition: str  # empty: the job must complete
    href: str  # empty: no permission


@dataclass(frozen=True, slots=True)
class RelatedJobs:
    title: str
    jobs: tuple[RelatedJob, ...]
    hidden_count: int


def build_related_jobs(job: Job, dependencies: DependencyView, user: User) -> tuple[RelatedJobs, ...]:
    """Parents, then children; empty groups are omitted."""
    title = "Waiting for" if job.parents_left and not job.is_terminal else "Depended on"
    groups = (
        (title, dependencies.parents, dependencies.parent_count),
        ("Dependent jobs", dependencies.children, dependencies.child_count),
    )
    return tuple(_group(title, found, count, user) for title, found, count in groups if count)


def _group(title: str, found: Iterable[tuple[Job, DependencyCondition]], count: int, user: User) -> RelatedJobs:
    shown = tuple(_related_job(job, rule, user) for job, rule in list(found)[:_MAX_RELATED])
    return RelatedJobs(title, shown, count - len(shown))


def _related_job(job: Job, rule: DependencyCondition, user: User) -> RelatedJob:
    href = f"/jobs/{job.id}" if may_inspect(user, job) else ""
    return RelatedJob(job.id, job.state.value, _CONDITION_LABELS.get(rule, ""), href)
