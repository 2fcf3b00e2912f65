"""From a request to a job that lacks only its number: rules, defaults, and whether any node could ever run it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from heliostat.errors import Forbidden, Invalid
from heliostat.models import Job, JobRequest, JobState, Node, PlacementRequest, Resources, User
from heliostat.models.jobs import ALWAYS_PREEMPTIBLE_CLASSES, PRIORITY_CLASSES
from heliostat.scheduling.feasibility import allows_data_class, could_ever_run, has_labels, matching_devices
from heliostat.services.jobs.feasibility_errors import infeasible_request_error

_LEAST_MEMORY_MIB = 256
_INTERPRETERS = {"python", "sh", "bash", "Rscript", "julia", "perl", "node", "torchrun"}
_Wish = tuple[int | None, int | None, float, str | None, int | None, PlacementRequest, int]


@dataclass(frozen=True, slots=True)
class JobDraftContext:
    """What is the same for all jobs of one submission."""

    user: User
    unix_user: str
    nodes: Sequence[Node]
    projects: Mapping[str | None, str]
    data_classes: Mapping[str, int]  # of these projects
    now: datetime
    default_time_limit_seconds: int | None
    max_time_limit_seconds: int
    max_grace_seconds: float
    are_nodes_known: bool = True  # otherwise nothing can be said of what they could run
    resources_by_request: dict[_Wish, Resources] = field(default_factory=dict)  # thousands may ask for the same


def draft_job(desk: JobDraftContext, request: JobRequest) -> Job:
    """The job but for its number. Raises when a rule forbids it or no node could ever run it."""
    user, project = desk.user, desk.projects[request.project]
    if request.priority > 0 and not user.may_manage(project):
        raise Forbidden(
            "Only a manager of the project or an admin may raise a job's priority.",
            "Leave it at 0, or lower it to let others go first.",
            fields={"priority": "above 0 only for managers of the project"},
        )
    _check_grace(desk, request)
    return Job(
        id=0,
        kind=request.kind,
        name=request.name or _default_name(request),
        state=JobState.HELD if request.held else JobState.PENDING,
        user=user.name,
        unix_user=desk.unix_user,
        project=project,
        resources=_resources(desk, request, desk.data_classes.get(project, 0)),
        spec=request.spec,
        submitted_at=desk.now,
        time_limit_seconds=_time_limit(desk, request),
        priority=request.priority,
        max_retries=request.max_retries,
        array_limit=request.array.limit if request.array else None,
        reason=f"held by {user.name}" if request.held else None,
        placement=request.placement,
        priority_class=_priority_class(request),
        preemptible=request.preemptible or request.priority_class in ALWAYS_PREEMPTIBLE_CLASSES,
        overtime=request.overtime,
        retry=request.retry,
        notify=request.notify,
        begin_at=desk.now + request.begin if isinstance(request.begin, timedelta) else request.begin,
    )


def _priority_class(request: JobRequest) -> str:
    if request.priority_class in PRIORITY_CLASSES:
        return request.priority_class
    known = ", ".join(PRIORITY_CLASSES)
    raise Invalid(
        f"There is no class {request.priority_class!a}.",
        f"Classes are: {known}.",
        fields={"priority_class": f"must be one of {known}"},
    )


def _check_grace(desk: JobDraftContext, request: JobRequest) -> None:
    """It is time past every limit, and others wait meanwhile."""
    most = desk.max_grace_seconds
    if request.spec.grace_seconds > most:
        raise Invalid(
            f"The longest grace here is {most:g} seconds.",
            "Ask for less, and save your work now and then so that little is left to do.",
            fields={"grace_seconds": f"must be at most {most:g}"},
        )


def _time_limit(desk: JobDraftContext, request: JobRequest) -> int | None:
    wanted, most = request.time_limit_seconds, desk.max_time_limit_seconds
    if wanted is not None and wanted > most:
        raise Invalid(
            f"The longest time limit here is {_in_words(most)}.",
            "Ask for less, and let the job save its work so that it can go on from there.",
            fields={"time_limit": f"must be at most {most} seconds"},
        )
    return wanted or desk.default_time_limit_seconds


def _in_words(seconds: int) -> str:
    """`90d`, `36h`, `100s`: as limits are written."""
    size, unit = next((one for one in ((86400, "d"), (3600, "h"), (60, "m")) if seconds % one[0] == 0), (1, "s"))
    return f"{seconds // size}{unit}"


def _default_name(request: JobRequest) -> str:
    if request.spec.script is not None or not request.spec.command:
        return "script"
    words = request.spec.command
    if words[:2] == ("/bin/sh", "-c") and len(words) > 2:
        words = tuple(words[2].split())
    names = [word.rsplit("/", 1)[-1] for word in words if word and not word.startswith("-")]
    is_interpreter = len(names) > 1 and names[0].rstrip("0123456789.") in _INTERPRETERS
    name = names[1] if is_interpreter else names[0] if names else ""
    if not name.isprintable():
        name = "".join(letter for letter in name if letter.isprintable())
    return name[:40].strip() or "job"


def _resources(desk: JobDraftContext, request: JobRequest, data_class: int) -> Resources:
    wish = (
        request.cpus,
        request.memory_mib,
        request.gpus,
        request.gpu_type,
        request.gpu_memory_mib,
        request.placement,
        data_class,
    )
    if wish not in desk.resources_by_request:
        desk.resources_by_request[wish] = _completed(request, desk, data_class)
    return desk.resources_by_request[wish]


def _completed(request: JobRequest, desk: JobDraftContext, data_class: int) -> Resources:
    """What was asked for, completed with a fair part of the smallest suitable node."""
    nodes = desk.nodes
    suitable = [node for node in nodes if _suits(node, request, data_class)] or list(nodes)
    cpus = request.cpus or min((_fair_cpus(node, request.gpus) for node in suitable), default=1)
    memory = request.memory_mib or min((_fair_memory(node, cpus) for node in suitable), default=1024)
    wanted = Resources(cpus, memory, request.gpus, request.gpu_type, request.gpu_memory_mib)
    if desk.are_nodes_known and not could_ever_run(nodes, wanted, request.placement, data_class):
        raise infeasible_request_error(request, wanted, nodes, data_class)
    return wanted


def _suits(node: Node, request: JobRequest, data_class: int) -> bool:
    devices = matching_devices(node, request.gpu_type, request.gpu_memory_mib)
    return (
        len(devices) >= request.gpus
        and (node.splits_devices or request.gpus == int(request.gpus))
        and allows_data_class(node, data_class)
        and has_labels(node, request.placement.labels)
    )


def _fair_cpus(node: Node, gpus: float) -> int:
    return max(1, int(node.cpus * gpus / max(1, len(node.devices))))


def _fair_memory(node: Node, cpus: int) -> int:
    return min(node.memory_mib, max(_LEAST_MEMORY_MIB, node.memory_mib * cpus // node.cpus))
