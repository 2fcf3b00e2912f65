"""Errors for requests that no node could ever run, with hints about what is possible."""

from collections.abc import Sequence
from dataclasses import replace

from heliostat.errors import Invalid
from heliostat.models import JobRequest, Node, Resources, TaskLayout
from heliostat.models.amounts import format_count, format_size, join_words
from heliostat.models.gpu_types import is_slice
from heliostat.scheduling.feasibility import (
    MissingRequirement,
    allows_data_class,
    count_tasks_that_fit,
    find_missing_requirement,
    format_gpus,
    has_labels,
    matching_devices,
)


def infeasible_request_error(
    request: JobRequest, resources: Resources, nodes: Sequence[Node], data_class: int
) -> Invalid:
    """The first obstacle, for a request that `could_ever_run` has refused."""
    if not nodes:
        return _impossible(request, "The cluster has no nodes.", "See `helio nodes`.")
    cleared = [node for node in nodes if allows_data_class(node, data_class)]
    if not cleared:
        return _no_clearance(nodes, data_class)
    missing = find_missing_requirement(nodes, resources, request.placement, data_class)
    if missing is not None:
        return _missing_error(missing, request, cleared, data_class)
    labelled = [node for node in cleared if has_labels(node, request.placement.labels)]
    if not labelled:
        return _no_labels(request, cleared)
    possible = count_tasks_that_fit(labelled, resources, request.placement.layout)
    if possible == 0:
        hint = (
            _largest(labelled)
            + _hint_for_tasks(request, resources, labelled)
            + _hint_for_slices(request, labelled)
        )
        return _impossible(request, f"No node has {_describe_request(request)}.", hint)
    return _too_many_tasks(request, possible)


def _missing_error(
    missing: MissingRequirement, request: JobRequest, cleared: Sequence[Node], data_class: int
) -> Invalid:
    """The one condition that nodes with enough resources do not meet."""
    if missing is MissingRequirement.LABELS:
        return _no_labels(request, cleared)
    if missing is MissingRequirement.GPU_SHARING:
        return _no_gpu_sharing(request, [node for node in cleared if has_labels(node, request.placement.labels)])
    return _error(
        f"No node that accepts the project's data (class {data_class}) has {_describe_request(request)}.",
        f"{_largest(cleared)} An admin can clear another node.",
        {"project": f"no node with {_describe_request(request)} for data of class {data_class}"},
    )


def _no_clearance(nodes: Sequence[Node], data_class: int) -> Invalid:
    classes = sorted({(node.min_data_class, node.data_class) for node in nodes})
    ranges = ", ".join(str(low) if low == high else f"{low} to {high}" for low, high in classes)
    return _error(
        f"No node may run jobs of a project with data of class {data_class}.",
        f"The nodes accept data of class {ranges}. "
        f"An admin can clear one: helio node set NAME --data-class {data_class}",
        {"project": f"no node for data of class {data_class}"},
    )


def _no_gpu_sharing(request: JobRequest, nodes: Sequence[Node]) -> Invalid:
    sharing = sorted(
        {device.type for node in nodes if node.splits_devices for device in matching_devices(node, None)}
    )
    hint = "Request a whole GPU: --gpus 1. An admin can let a node share its GPUs."
    if not sharing:
        fields = {"gpus": "no node shares its GPUs between jobs"}
        return _error("No node offers fractions of a GPU.", hint, fields)
    return _error(
        f"The nodes with {_describe_request(replace(request, gpus=1))} offer whole GPUs only.",
        f"{hint} Fractions are available of: {', '.join(sharing)}.",
        {"gpus": "these nodes do not share their GPUs between jobs"},
    )


def _hint_for_tasks(request: JobRequest, resources: Resources, nodes: Sequence[Node]) -> str:
    """A hint how to distribute the request over several nodes; empty: not possible."""
    if request.placement.tasks > 1 or request.gpus < 2:
        return ""
    most = max(len(matching_devices(node, request.gpu_type, request.gpu_memory_mib)) for node in nodes)
    whole = int(request.gpus)
    tasks = next((count for count in range(2, whole + 1) if whole % count == 0 and whole // count <= most), 0)
    if not most or not tasks:
        return ""
    each = replace(
        resources,
        cpus=-(-resources.cpus // tasks),
        memory_mib=-(-resources.memory_mib // tasks),
        gpus=whole // tasks,
    )
    if count_tasks_that_fit(nodes, each, request.placement.layout) < tasks:
        return ""
    return f" Several nodes together can run it: --tasks {tasks} --gpus {whole // tasks} (GPUs per task)."


def _hint_for_slices(request: JobRequest, nodes: Sequence[Node]) -> str:
    slices = sorted({device.type for node in nodes for device in node.devices if is_slice(device.type)})
    if not slices or not request.gpus or request.gpu_type is not None:
        return ""
    return f" MIG slices are only for jobs that name their type: --gpu-type {' or '.join(slices)}."


def _no_labels(request: JobRequest, nodes: Sequence[Node]) -> Invalid:
    labels = ", ".join(request.placement.labels)
    known = sorted({f"{name}={value}" if value else name for node in nodes for name, value in node.labels.items()})
    return _error(
        f"No node that may run this has the labels {labels}.",
        f"Existing labels: {', '.join(known[:40]) or 'none'}.",
        {"labels": "no node has all of these"},
    )


def _too_many_tasks(request: JobRequest, possible: int) -> Invalid:
    placement, size = request.placement, _describe_request(request)
    if placement.layout is TaskLayout.SPREAD:
        needed = f"{placement.tasks} tasks, each on a node of its own, need {placement.tasks} nodes with {size}"
        return _error(
            f"{needed}; there are {possible}.",
            f"Request {format_count(possible, 'task')}, or layout pack, which puts several tasks on one node.",
            {"tasks": f"at most {possible} with layout spread"},
        )
    return _error(
        f"All nodes together can run {format_count(possible, 'task')} with {size} each, not {placement.tasks}.",
        f"Request {format_count(possible, 'task')}, or fewer resources: the amounts are per task.",
        {"tasks": f"at most {possible} of this size"},
    )


def _impossible(request: JobRequest, message: str, hint: str) -> Invalid:
    amounts = {
        "cpus": request.cpus,
        "memory": request.memory_mib,
        "gpus": request.gpus,
        "gpu_type": request.gpu_type,
        "gpu_memory": request.gpu_memory_mib,
    }
    fields = {name: f"no node has {value} together with the rest" for name, value in amounts.items() if value}
    return _error(message, hint, fields)


def _error(message: str, hint: str, fields: dict[str, str]) -> Invalid:
    return Invalid(message, hint, code="impossible", fields=fields)


def _largest(nodes: Sequence[Node]) -> str:
    cpus, memory = max(node.cpus for node in nodes), max(node.memory_mib for node in nodes)
    gpus = sorted({_describe_devices(node, device.type) for node in nodes for device in node.devices})
    largest = join_words([format_count(cpus, "CPU"), format_size(memory), *(gpus or ["no GPU"])])
    return f"The largest nodes have {largest}."


def _describe_devices(node: Node, gpu_type: str) -> str:
    devices = matching_devices(node, gpu_type)
    return f"{len(devices)} {gpu_type} of {format_size(max(device.memory_mib for device in devices))}"


def _describe_request(request: JobRequest) -> str:
    """The requested amounts, without those that were filled in."""
    gpus = format_gpus(request.gpus, request.gpu_type, request.gpu_memory_mib) if request.gpus else None
    cpus = format_count(request.cpus, "CPU") if request.cpus else None
    memory = f"{format_size(request.memory_mib)} of memory" if request.memory_mib else None
    return ", ".join(part for part in (gpus, cpus, memory) if part) or "enough free resources"
