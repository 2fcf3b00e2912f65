"""GPU heatmap: cells with a colour, symbol and pattern per condition, and a text label."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from heliostat.models import JobState, NodeState
from heliostat.services.cluster.overview import DeviceCondition, DeviceStatus, JobOnNode, NodeStatus
from heliostat.web import formatting

CONDITION_MEANINGS = {
    DeviceCondition.FREE: "available now",
    DeviceCondition.BUSY: "in use by a job",
    DeviceCondition.IDLE: "allocated, but hardly used for ten minutes",
    DeviceCondition.DRAINED: "node drained by an admin",
    DeviceCondition.FAULTY: "GPU reports an error, or its node is down",
    DeviceCondition.FOREIGN: "used outside the queue",
}
CONDITION_NAMES = {DeviceCondition.FOREIGN: "external"}
_WITH_NUMBERS = {DeviceCondition.BUSY, DeviceCondition.IDLE, DeviceCondition.FOREIGN}
_MAX_NAMED_JOBS = 4


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    href: str
    css_classes: str  # condition, and utilisation and memory in tenths
    label: str  # full description, on several lines
    top_text: str
    bottom_text: str


@dataclass(frozen=True, slots=True)
class HeatmapNode:
    name: str
    href: str
    state: str
    state_text: str  # state and reason of the node; empty: it is up
    cells: tuple[HeatmapCell, ...]


def condition_name(condition: DeviceCondition) -> str:
    return CONDITION_NAMES.get(condition, condition.value)


def node_href(name: str) -> str:
    return f"/cluster/{quote(name, safe='')}"


def cell_size(devices: int) -> str:
    """Cell size by the number of GPUs: a few fill the page, and thousands fit on it."""
    return "large" if devices <= 16 else "medium" if devices <= 200 else "small"


def count_by_condition(nodes: Iterable[NodeStatus]) -> Counter[DeviceCondition]:
    return Counter(seen.condition for node in nodes for seen in node.devices)


def build_heatmap_node(seen: NodeStatus, devices: Iterable[DeviceStatus], now: datetime) -> HeatmapNode:
    """The node with the given devices."""
    node = seen.node
    state_text = f"{node.state.value}: {node.reason}" if node.reason else node.state.value
    return HeatmapNode(
        name=node.name,
        href=node_href(node.name),
        state=node.state.value,
        state_text="" if node.state is NodeState.UP else state_text,
        cells=tuple(build_heatmap_cell(seen, device, now) for device in devices),
    )


def build_heatmap_cell(node: NodeStatus, seen: DeviceStatus, now: datetime) -> HeatmapCell:
    device, has_numbers = seen.device, seen.condition in _WITH_NUMBERS
    memory = device.memory_used_mib / device.memory_mib if device.memory_mib else 0.0
    used = (device.utilisation or 0) / 100
    tenths = f" u{_tenths(used)} m{_tenths(memory)}" if has_numbers else ""
    return HeatmapCell(
        href=f"{node_href(node.node.name)}#gpu-{device.number}",
        css_classes=f"{seen.condition.value}{tenths}",
        label=describe_device(node, seen, now),
        top_text=formatting.format_percent(None if device.utilisation is None else used) if has_numbers else "",
        bottom_text=_gib(device.memory_used_mib) if has_numbers else _gib(device.memory_mib),
    )


def describe_device(node: NodeStatus, seen: DeviceStatus, now: datetime) -> str:
    """Type, utilisation and memory, then one line per job."""
    device = seen.device
    title = f"{node.node.name}, GPU {device.number}: {condition_name(seen.condition)}"
    used = "" if device.utilisation is None else f"{formatting.format_percent(device.utilisation / 100)} used, "
    memory = (
        f"{formatting.format_size(device.memory_used_mib)} of {formatting.format_size(device.memory_mib)} memory"
    )
    lines = [title, f"{device.type}, {used}{memory}"]
    if problem := describe_problem(node, seen):
        lines.append(problem)
    lines += [describe_tenant(tenant, now) for tenant in seen.jobs[:_MAX_NAMED_JOBS]]
    more = len(seen.jobs) - _MAX_NAMED_JOBS
    return "\n".join([*lines, f"and {formatting.format_count(more, 'job')} more"] if more > 0 else lines)


def describe_problem(node: NodeStatus, seen: DeviceStatus) -> str:
    """Why the device is not free or busy; empty otherwise."""
    match seen.condition:
        case DeviceCondition.FAULTY:
            return seen.device.problem or f"the node is down: {node.node.reason or 'no response'}"
        case DeviceCondition.FOREIGN:
            return seen.device.used_outside or ""
        case DeviceCondition.DRAINED:
            return f"drained: {node.node.reason}" if node.node.reason else "drained"
        case DeviceCondition.IDLE:
            return "hardly used in the last ten minutes"
    return ""


def describe_tenant(tenant: JobOnNode, now: datetime) -> str:
    """Names of other users' jobs are hidden."""
    name = f" {tenant.name}" if tenant.name else ""
    parts = [f"{tenant.user} ({tenant.project}): job {tenant.job_id}{name}"]
    if tenant.state is JobState.STARTING or tenant.started_at is None:
        parts.append("starting")
    else:
        minutes = (now - tenant.started_at).total_seconds() // 60
        parts.append(f"for {formatting.format_duration(minutes * 60)}" if minutes > 0 else "just started")
    if tenant.ends_at is not None:
        left = (tenant.ends_at - now).total_seconds()
        parts.append(
            f"at most {formatting.format_duration(left // 60 * 60)} left"
            if left >= 60
            else "time limit almost reached"
        )
    return ", ".join(parts)


def _tenths(fraction: float) -> int:
    return round(10 * min(1.0, max(0.0, fraction)))


def _gib(mib: int) -> str:
    return f"{mib / 1024:.0f} GiB" if mib >= 1024 else f"{mib} MiB"
