"""What a job asked for, where it runs, what it runs, and which jobs it waits for: as one person may know it."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heliostat.models import ACTIVE_STATES, DependencyCondition, Job, JobState, TaskLayout, User
from heliostat.models.nodes import Device
from heliostat.services.jobs.job_history import DependencyView
from heliostat.services.permissions import may_inspect, may_see_env_values
from heliostat.services.sessions.lifecycle import TOKEN_VARIABLE
from heliostat.web import words

_SCRIPT_SHOWN = 20_000
_SHOWN = 20
_RULES = {
    DependencyCondition.ANY: "however it ends",
    DependencyCondition.FAILED: "if it fails",
    DependencyCondition.BUILT: "builds its environment",
    DependencyCondition.WORKFLOW_DECIDES: "as their workflow says",
}


@dataclass(frozen=True, slots=True)
class PlaceRow:
    task: int
    node: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    name: str
    value: str | None  # None: not for this person


@dataclass(frozen=True, slots=True)
class Facts:
    asks: tuple[tuple[str, str], ...]
    places: tuple[PlaceRow, ...]
    is_gang: bool
    command: str
    script: str
    script_is_cut: bool
    workdir: str  # empty: a folder of its own
    runs_as: str
    variables: tuple[Variable, ...]
    values_hidden: bool


def facts(job: Job, user: User, devices: Mapping[str, Device]) -> Facts:
    spec = job.spec
    script = spec.script or ""
    sees_values = may_see_env_values(user, job)
    return Facts(
        asks=tuple((label, value) for label, value in _asks(job) if value),
        places=tuple(_place(number, job, devices) for number in range(len(job.task_placements))),
        is_gang=job.placement.tasks > 1,
        command=_as_typed(spec.command),
        script=script[:_SCRIPT_SHOWN],
        script_is_cut=len(script) > _SCRIPT_SHOWN,
        workdir=spec.workdir or "",
        runs_as=job.unix_user,
        variables=tuple(
            Variable(name, spec.env[name] if sees_values else None)
            for name in sorted(spec.env)
            if name != TOKEN_VARIABLE
        ),
        values_hidden=not sees_values,
    )


def _as_typed(command: Sequence[str]) -> str:
    """A shell line as it was written; other words quoted where they need it."""
    match command:
        case ["/bin/sh", "-c", line]:
            return line
        case _:
            return shlex.join(command)


@dataclass(frozen=True, slots=True)
class Action:
    verb: str
    label: str
    kind: str = "quiet"
    icon: str = ""


def actions(job: Job) -> tuple[Action, ...]:
    """What can be done to it now."""
    if job.is_terminal:
        return ()
    if job.state is JobState.HELD:
        return (Action("release", "Release", "main", "running"), _CANCEL)
    if job.state in ACTIVE_STATES and job.stop_requested:
        return () if job.stop_requested == "kill" else (Action("kill", "Stop at once", "danger", "cancelled"),)
    if job.state in ACTIVE_STATES:
        return (Action("requeue", "Back to the queue", icon="preempted"), _CANCEL)
    return (Action("hold", "Hold", icon="held"), _CANCEL)


_CANCEL = Action("cancel", "Cancel", "danger", "cancelled")


def _asks(job: Job) -> list[tuple[str, str]]:
    wanted, placement = job.resources, job.placement
    limit = "none" if job.time_limit_seconds is None else words.duration(job.time_limit_seconds)
    rank = job.priority_class + (", may be asked to make room" if job.preemptible else "")
    nodes = [
        "one for each task" if placement.layout is TaskLayout.SPREAD and placement.tasks > 1 else "",
        "with nobody else" if placement.exclusive else "",
        ", ".join(placement.labels),
        f"in the reservation {placement.reservation}" if placement.reservation else "",
    ]
    return [
        ("Tasks", f"{placement.tasks}, each with" if placement.tasks > 1 else ""),
        ("GPUs", _gpus(job)),
        ("CPU cores", words.number(wanted.cpus)),
        ("Memory", words.size(wanted.memory_mib)),
        ("Nodes", ", ".join(text for text in nodes if text)),
        ("Time limit", limit + (", longer while nobody waits" if job.overtime else "")),
        ("Environment", (job.environment or "")[:12]),
        ("Image", job.spec.image or ""),
        ("Isolation", _isolation(job)),
        ("Mounts", ", ".join(map(str, job.spec.mounts))),
        ("Class", "" if rank == "normal" else rank),
        ("Priority", str(job.priority) if job.priority else ""),
        ("Not before", f"{job.begin_at:%Y-%m-%d %H:%M} UTC" if job.begin_at else ""),
        ("Retries", _retries(job)),
        ("Made room", words.plural(job.preemptions, "time") if job.preemptions else ""),
    ]


def _retries(job: Job) -> str:
    if not job.max_retries:
        return ""
    delay = f", waits {words.duration(job.retry.delay_seconds)} and longer" if job.retry.delay_seconds else ""
    return f"{job.retries} of {job.max_retries} used, after {', '.join(job.retry.on)}{delay}"


def _isolation(job: Job) -> str:
    spec = job.spec
    if not spec.uses_container:
        return ""
    return f"{spec.runtime or 'as usual'}{f', network {spec.network}' if spec.network else ''}"


def _gpus(job: Job) -> str:
    wanted = job.resources
    if not wanted.gpus:
        return "none"
    least = f", at least {words.size(wanted.gpu_memory_mib)} each" if wanted.gpu_memory_mib else ""
    return " ".join(filter(None, [words.number(wanted.gpus), wanted.gpu_type])) + least


def _place(number: int, job: Job, devices: Mapping[str, Device]) -> PlaceRow:
    place = job.task_placements[number]
    return PlaceRow(number, place.node, tuple(_device(uuid, devices.get(uuid)) for uuid in place.devices))


def _device(uuid: str, device: Device | None) -> str:
    return uuid if device is None else f"GPU {device.index}, {device.type}"


@dataclass(frozen=True, slots=True)
class Relative:
    id: int
    state: str
    rule: str  # empty: it has to complete
    href: str  # empty: not for this person


@dataclass(frozen=True, slots=True)
class Relatives:
    title: str
    shown: tuple[Relative, ...]
    more: int


def relatives(job: Job, family: DependencyView, user: User) -> tuple[Relatives, ...]:
    """What there is: parents, then children."""
    title = "Waits for" if job.parents_left and not job.is_terminal else "Waited for"
    groups = (
        (title, family.parents, family.parent_count),
        ("Waiting for it", family.children, family.child_count),
    )
    return tuple(_group(title, found, count, user) for title, found, count in groups if count)


def _group(title: str, found: Iterable[tuple[Job, DependencyCondition]], count: int, user: User) -> Relatives:
    shown = tuple(_relative(job, rule, user) for job, rule in list(found)[:_SHOWN])
    return Relatives(title, shown, count - len(shown))


def _relative(job: Job, rule: DependencyCondition, user: User) -> Relative:
    href = f"/jobs/{job.id}" if may_inspect(user, job) else ""
    return Relative(job.id, job.state.value, _RULES.get(rule, ""), href)
