"""Job drafts: a request completed with defaults and checked against limits and nodes, without an id."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from heliostat.errors import Forbidden, Invalid
from heliostat.models import Job, JobRequest, JobState, Node, PlacementRequest, Resources, User, count_cards
from heliostat.models.gpu_types import is_slice
from heliostat.models.jobs import ALWAYS_PREEMPTIBLE_CLASSES, PRIORITY_CLASSES
from heliostat.scheduling.feasibility import allows_data_class, could_ever_run, has_labels, matching_devices
from heliostat.services.jobs.feasibility_errors import infeasible_request_error

_MIN_MEMORY_MIB = 256
_INTERPRETERS = {"python", "sh", "bash", "Rscript", "julia", "perl", "node", "torchrun"}
_SHELLS = {"sh", "bash", "dash", "zsh"}
_CODE_OPTION = re.compile(r"-[a-z]*c")
_SHELL_SEPARATORS = re.compile(r"[\s;&|()]+")
_MAX_CODE_LENGTH = 1000  # characters that a name is looked for in
_ResourceKey = tuple[int | None, int | None, float, str | None, int | None, PlacementRequest, int]


@dataclass(frozen=True, slots=True)
class JobDraftContext:
    """Data that all jobs of one submission share."""

    user: User
    unix_user: str
    nodes: Sequence[Node]
    projects: Mapping[str | None, str]
    data_classes: Mapping[str, int]  # of these projects
    now: datetime
    default_time_limit_seconds: int | None
    max_time_limit_seconds: int
    max_grace_seconds: float
    are_nodes_known: bool = True  # False: feasibility is not checked
    resources_by_request: dict[_ResourceKey, Resources] = field(default_factory=dict)  # thousands may be equal


def draft_job(draft_context: JobDraftContext, request: JobRequest) -> Job:
    """The job without an id. Raises if a rule forbids it or no node could ever run it."""
    user, project = draft_context.user, draft_context.projects[request.project]
    if request.priority > 0 and not user.may_manage(project):
        raise Forbidden(
            "Only a manager of the project or an admin may raise a job's priority.",
            "Leave it at 0, or lower it to let others go first.",
            fields={"priority": "above 0 only for managers of the project"},
        )
    _check_grace(draft_context, request)
    return Job(
        id=0,
        kind=request.kind,
        name=request.name or _default_name(request),
        state=JobState.HELD if request.held else JobState.PENDING,
        user=user.name,
        unix_user=draft_context.unix_user,
        project=project,
        resources=_resources(draft_context, request, draft_context.data_classes.get(project, 0)),
        spec=request.spec,
        submitted_at=draft_context.now,
        time_limit_seconds=_time_limit(draft_context, request),
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
        begin_at=draft_context.now + request.begin if isinstance(request.begin, timedelta) else request.begin,
    )


def _priority_class(request: JobRequest) -> str:
    if request.priority_class in PRIORITY_CLASSES:
        return request.priority_class
    known = ", ".join(PRIORITY_CLASSES)
    raise Invalid(
        f"There is no priority class {request.priority_class!a}.",
        f"Priority classes: {known}.",
        fields={"priority_class": f"must be one of {known}"},
    )


def _check_grace(draft_context: JobDraftContext, request: JobRequest) -> None:
    """Limited because the grace period comes on top of the time limit, while other jobs wait."""
    maximum = draft_context.max_grace_seconds
    if request.spec.grace_seconds > maximum:
        raise Invalid(
            f"The maximum grace period is {maximum:g} seconds.",
            "Request less, and write checkpoints regularly so that little is left to save.",
            fields={"grace_seconds": f"must be at most {maximum:g}"},
        )


def _time_limit(draft_context: JobDraftContext, request: JobRequest) -> int | None:
    requested, maximum = request.time_limit_seconds, draft_context.max_time_limit_seconds
    if requested is not None and requested > maximum:
        raise Invalid(
            f"The maximum time limit is {_format_duration(maximum)}.",
            "Request less, and let the job write checkpoints so that it can continue later.",
            fields={"time_limit": f"must be at most {maximum} seconds"},
        )
    return requested or draft_context.default_time_limit_seconds


def _format_duration(seconds: int) -> str:
    """`90d`, `36h`, `100s`: as limits are written."""
    units = ((86400, "d"), (3600, "h"), (60, "m"))
    size, unit = next((pair for pair in units if seconds % pair[0] == 0), (1, "s"))
    return f"{seconds // size}{unit}"


def _default_name(request: JobRequest) -> str:
    if request.spec.script is not None or not request.spec.command:
        return "script"
    name = _command_name(request.spec.command)
    if not name.isprintable():
        name = "".join(letter for letter in name if letter.isprintable())
    return name[:40].strip() or "job"


def _command_name(arguments: Sequence[str]) -> str:
    """`train.py` of `python train.py`, `cat` of `sh -c 'cat /etc/hosts'`."""
    if len(arguments) > 2 and _CODE_OPTION.fullmatch(arguments[1]):
        program, code = arguments[0].rsplit("/", 1)[-1], arguments[2][:_MAX_CODE_LENGTH]
        if program in _SHELLS:
            arguments = _SHELL_SEPARATORS.split(code)
        elif program.rstrip("0123456789.") in _INTERPRETERS:
            return " ".join(code.split())
    names = [word.rsplit("/", 1)[-1] for word in arguments if word and not word.startswith("-")]
    is_interpreter = len(names) > 1 and names[0].rstrip("0123456789.") in _INTERPRETERS
    return names[1] if is_interpreter else names[0] if names else ""


def _resources(draft_context: JobDraftContext, request: JobRequest, data_class: int) -> Resources:
    key = (
        request.cpus,
        request.memory_mib,
        request.gpus,
        request.gpu_type,
        request.gpu_memory_mib,
        request.placement,
        data_class,
    )
    if key not in draft_context.resources_by_request:
        draft_context.resources_by_request[key] = _complete_resources(request, draft_context, data_class)
    return draft_context.resources_by_request[key]


def _complete_resources(request: JobRequest, draft_context: JobDraftContext, data_class: int) -> Resources:
    """The requested resources; missing amounts become a fair fraction of the smallest suitable node."""
    if 0 < request.gpus < 1 and is_slice(request.gpu_type):
        raise Invalid(
            "Jobs cannot share a MIG slice.",
            f"Request a whole slice: --gpus 1 --gpu-type {request.gpu_type}",
            fields={"gpus": "must be a whole number for a MIG slice"},
        )
    nodes = draft_context.nodes
    suitable = [node for node in nodes if _suits(node, request, data_class)] or list(nodes)
    cards = Resources(gpus=request.gpus, gpu_type=request.gpu_type).cards
    cpus = request.cpus or min((_fair_cpus(node, cards) for node in suitable), default=1)
    memory = request.memory_mib or min((_fair_memory(node, cpus) for node in suitable), default=1024)
    resources = Resources(cpus, memory, request.gpus, request.gpu_type, request.gpu_memory_mib)
    if draft_context.are_nodes_known and not could_ever_run(nodes, resources, request.placement, data_class):
        raise infeasible_request_error(request, resources, nodes, data_class)
    return resources


def _suits(node: Node, request: JobRequest, data_class: int) -> bool:
    devices = matching_devices(node, request.gpu_type, request.gpu_memory_mib)
    return (
        len(devices) >= request.gpus
        and (node.splits_devices or request.gpus == int(request.gpus))
        and allows_data_class(node, data_class)
        and has_labels(node, request.placement.labels)
    )


def _fair_cpus(node: Node, cards: float) -> int:
    return max(1, int(node.cpus * cards / (count_cards(node.devices) or 1) + 1e-4))


def _fair_memory(node: Node, cpus: int) -> int:
    return min(node.memory_mib, max(_MIN_MEMORY_MIB, node.memory_mib * cpus // node.cpus))
