"""Why no node could ever run a job, in words that say what would be possible."""

from collections.abc import Sequence
from dataclasses import replace

from heliostat.errors import Invalid
from heliostat.models import JobRequest, Node, Resources, TaskLayout
from heliostat.scheduling.feasibility import (
    MissingRequirement,
    allows_data_class,
    count_tasks_that_fit,
    find_missing_requirement,
    format_cpus,
    format_gpus,
    format_memory,
    format_tasks,
    has_labels,
    matching_devices,
)


def infeasible_request_error(
    request: JobRequest, wanted: Resources, nodes: Sequence[Node], data_class: int
) -> Invalid:
    """The first thing in the way, of a request that `could_ever_run` has refused."""
    if not nodes:
        return _impossible(request, "There is no node at all.", "See `helio nodes`.")
    cleared = [node for node in nodes if allows_data_class(node, data_class)]
    if not cleared:
        return _no_clearance(nodes, data_class)
    lack = find_missing_requirement(nodes, wanted, request.placement, data_class)
    if lack is not None:
        return _lacking(lack, request, cleared, data_class)
    labelled = [node for node in cleared if has_labels(node, request.placement.labels)]
    if not labelled:
        return _no_labels(request, cleared)
    possible = count_tasks_that_fit(labelled, wanted, request.placement.layout)
    if possible == 0:
        hint = _largest(labelled) + _as_tasks(request, wanted, labelled)
        return _impossible(request, f"No node has {_asked(request)}.", hint)
    return _too_many_tasks(request, possible)


def _lacking(lack: MissingRequirement, request: JobRequest, cleared: Sequence[Node], data_class: int) -> Invalid:
    """The one condition that keeps it from the nodes that are large enough."""
    if lack is MissingRequirement.LABELS:
        return _no_labels(request, cleared)
    if lack is MissingRequirement.GPU_SHARING:
        return _no_parts(request, [node for node in cleared if has_labels(node, request.placement.labels)])
    return _error(
        f"No node that takes data of class {data_class}, as the project has it, has {_asked(request)}.",
        f"{_largest(cleared)} An admin can clear another.",
        {"project": f"no node with {_asked(request)} for data of class {data_class}"},
    )


def _no_clearance(nodes: Sequence[Node], data_class: int) -> Invalid:
    classes = sorted({(node.min_data_class, node.data_class) for node in nodes})
    ranges = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in classes)
    return _error(
        f"No node may run jobs of a project with data of class {data_class}.",
        f"Nodes are there for data of class {ranges}; an admin can clear one.",
        {"project": f"no node for data of class {data_class}"},
    )


def _no_parts(request: JobRequest, nodes: Sequence[Node]) -> Invalid:
    sharing = sorted({device.type for node in nodes if node.splits_devices for device in node.devices})
    hint = "Ask for a whole one: --gpus 1. An admin can let a node share its GPUs."
    if not sharing:
        fields = {"gpus": "no node shares its GPUs between jobs"}
        return _error("No node gives out parts of a GPU.", hint, fields)
    return _error(
        f"The nodes with {_asked(replace(request, gpus=1))} give out whole GPUs only.",
        f"{hint} Parts there are of {', '.join(sharing)}.",
        {"gpus": "these nodes do not share their GPUs between jobs"},
    )


def _as_tasks(request: JobRequest, wanted: Resources, nodes: Sequence[Node]) -> str:
    """How several nodes together could do it."""
    if request.placement.tasks > 1 or request.gpus < 2:
        return ""
    most = max(len(matching_devices(node, request.gpu_type, request.gpu_memory_mib)) for node in nodes)
    whole = int(request.gpus)
    tasks = next((count for count in range(2, whole + 1) if whole % count == 0 and whole // count <= most), 0)
    if not most or not tasks:
        return ""
    each = replace(
        wanted, cpus=-(-wanted.cpus // tasks), memory_mib=-(-wanted.memory_mib // tasks), gpus=whole // tasks
    )
    if count_tasks_that_fit(nodes, each, request.placement.layout) < tasks:
        return ""
    return f" Several nodes together can: --tasks {tasks} --gpus {whole // tasks}, which each task gets."


def _no_labels(request: JobRequest, nodes: Sequence[Node]) -> Invalid:
    wanted = ", ".join(request.placement.labels)
    known = sorted({f"{name}={value}" if value else name for node in nodes for name, value in node.labels.items()})
    return _error(
        f"No node that may run this has the labels {wanted}.",
        f"Labels there are: {', '.join(known[:40]) or 'none'}.",
        {"labels": "no node has all of these"},
    )


def _too_many_tasks(request: JobRequest, possible: int) -> Invalid:
    placement, size = request.placement, _asked(request)
    if placement.layout is TaskLayout.SPREAD:
        needed = f"{placement.tasks} tasks, each on a node of its own, need {placement.tasks} nodes with {size}"
        return _error(
            f"{needed}; there are {possible}.",
            f"Ask for {format_tasks(possible)}, or for layout pack, which puts several on one node.",
            {"tasks": f"at most {possible} with layout spread"},
        )
    return _error(
        f"All nodes together hold {format_tasks(possible)} with {size} each, not {placement.tasks}.",
        f"Ask for {format_tasks(possible)}, or for less in each: what you ask for is that of one task.",
        {"tasks": f"at most {possible} of this size"},
    )


def _impossible(request: JobRequest, message: str, hint: str) -> Invalid:
    asked = {
        "cpus": request.cpus,
        "memory": request.memory_mib,
        "gpus": request.gpus,
        "gpu_type": request.gpu_type,
        "gpu_memory": request.gpu_memory_mib,
    }
    fields = {name: f"no node has {value} together with the rest" for name, value in asked.items() if value}
    return _error(message, hint, fields)


def _error(message: str, hint: str, fields: dict[str, str]) -> Invalid:
    return Invalid(message, hint, code="impossible", fields=fields)


def _largest(nodes: Sequence[Node]) -> str:
    cpus, memory = max(node.cpus for node in nodes), max(node.memory_mib for node in nodes)
    gpus = sorted({_devices_in_words(node, device.type) for node in nodes for device in node.devices})
    return f"The largest nodes have {cpus} cpus, {format_memory(memory)} and {', '.join(gpus) or 'no GPU'}."


def _devices_in_words(node: Node, gpu_type: str) -> str:
    devices = matching_devices(node, gpu_type)
    return f"{len(devices)} {gpu_type} of {format_memory(max(device.memory_mib for device in devices))}"


def _asked(request: JobRequest) -> str:
    """What was asked for; not what we filled in."""
    gpus = format_gpus(request.gpus, request.gpu_type, request.gpu_memory_mib) if request.gpus else None
    cpus = format_cpus(request.cpus) if request.cpus else None
    memory = f"{format_memory(request.memory_mib)} of memory" if request.memory_mib else None
    return ", ".join(part for part in (gpus, cpus, memory) if part) or "room for this"
