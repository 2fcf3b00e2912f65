"""Devices as cells of a map: one colour, sign and pattern for each condition, and a full label for each cell."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

from heliostat.models import JobState, NodeState
from heliostat.services.cluster.overview import DeviceCondition, DeviceStatus, JobOnNode, NodeStatus
from heliostat.web import formatting

CONDITION_MEANINGS = {
    DeviceCondition.FREE: "can be had now",
    DeviceCondition.BUSY: "a job works on it",
    DeviceCondition.IDLE: "held by a job that has hardly used it for ten minutes",
    DeviceCondition.DRAINED: "taken out of use by an admin",
    DeviceCondition.FAULTY: "reports an error, or its node is down",
    DeviceCondition.FOREIGN: "used by a process or a job that is not of the queue",
}
CONDITION_NAMES = {DeviceCondition.IDLE: "held, unused", DeviceCondition.FOREIGN: "used outside"}
_WITH_NUMBERS = {DeviceCondition.BUSY, DeviceCondition.IDLE, DeviceCondition.FOREIGN}
_NAMED_TENANTS = 4


@dataclass(frozen=True, slots=True)
class HeatmapCell:
    href: str
    css_classes: str  # classes: its condition, utilisation and memory in tenths
    label: str  # all there is to say, on a few lines
    top_text: str
    bottom_text: str


@dataclass(frozen=True, slots=True)
class HeatmapNode:
    """A node on the map."""

    name: str
    href: str
    state: str
    state_text: str  # what is to be said of the node itself; empty: nothing
    cells: tuple[HeatmapCell, ...]


def condition_name(condition: DeviceCondition) -> str:
    return CONDITION_NAMES.get(condition, condition.value)


def node_href(name: str) -> str:
    return f"/cluster/{quote(name, safe='')}"


def cell_size(devices: int) -> str:
    """How large cells are, so that few fill the page and thousands fit on it."""
    return "large" if devices <= 16 else "medium" if devices <= 200 else "small"


def count_by_condition(nodes: Iterable[NodeStatus]) -> Counter[DeviceCondition]:
    return Counter(seen.condition for node in nodes for seen in node.devices)


def build_heatmap_node(seen: NodeStatus, devices: Iterable[DeviceStatus], now: datetime) -> HeatmapNode:
    """With these of its devices."""
    node = seen.node
    about = f"{node.state.value}: {node.reason}" if node.reason else node.state.value
    return HeatmapNode(
        name=node.name,
        href=node_href(node.name),
        state=node.state.value,
        state_text="" if node.state is NodeState.UP else about,
        cells=tuple(build_heatmap_cell(seen, device, now) for device in devices),
    )


def build_heatmap_cell(node: NodeStatus, seen: DeviceStatus, now: datetime) -> HeatmapCell:
    device, has_numbers = seen.device, seen.condition in _WITH_NUMBERS
    memory = device.memory_used_mib / device.memory_mib if device.memory_mib else 0.0
    used = (device.utilisation or 0) / 100
    tenths = f" u{_tenths(used)} m{_tenths(memory)}" if has_numbers else ""
    return HeatmapCell(
        href=f"{node_href(node.node.name)}#gpu-{device.index}",
        css_classes=f"{seen.condition.value}{tenths}",
        label=describe_device(node, seen, now),
        top_text=formatting.format_percent(None if device.utilisation is None else used) if has_numbers else "",
        bottom_text=_gib(device.memory_used_mib) if has_numbers else _gib(device.memory_mib),
    )


def describe_device(node: NodeStatus, seen: DeviceStatus, now: datetime) -> str:
    """What it is and does, then who is on it, a line each."""
    device = seen.device
    head = f"{node.node.name}, GPU {device.index}: {condition_name(seen.condition)}"
    used = "" if device.utilisation is None else f"{device.utilisation} % used, "
    memory = (
        f"{formatting.format_size(device.memory_used_mib)} of {formatting.format_size(device.memory_mib)} memory"
    )
    lines = [head, f"{device.type}, {used}{memory}"]
    if why := describe_problem(node, seen):
        lines.append(why)
    lines += [describe_tenant(tenant, now) for tenant in seen.jobs[:_NAMED_TENANTS]]
    more = len(seen.jobs) - _NAMED_TENANTS
    return "\n".join([*lines, f"and {formatting.format_count(more, 'job')} more"] if more > 0 else lines)


def describe_problem(node: NodeStatus, seen: DeviceStatus) -> str:
    """Why it is not simply free or busy."""
    match seen.condition:
        case DeviceCondition.FAULTY:
            return seen.device.problem or f"the node is down: {node.node.reason or 'it does not answer'}"
        case DeviceCondition.FOREIGN:
            return seen.device.used_outside or ""
        case DeviceCondition.DRAINED:
            return f"drained: {node.node.reason}" if node.node.reason else "drained"
        case DeviceCondition.IDLE:
            return "hardly used in the last ten minutes"
    return ""


def describe_tenant(tenant: JobOnNode, now: datetime) -> str:
    """Names of other people's jobs are not told."""
    name = f" {tenant.name}" if tenant.name else ""
    parts = [f"{tenant.user} ({tenant.project}): job {tenant.job_id}{name}"]
    if tenant.state is JobState.STARTING or tenant.started_at is None:
        parts.append("starting")
    else:
        minutes = (now - tenant.started_at).total_seconds() // 60
        parts.append(f"for {formatting.format_duration(minutes * 60)}" if minutes > 0 else "just begun")
    if tenant.ends_at is not None:
        left = (tenant.ends_at - now).total_seconds()
        parts.append(
            f"at most {formatting.format_duration(left // 60 * 60)} more"
            if left >= 60
            else "its time is nearly over"
        )
    return ", ".join(parts)


def _tenths(part: float) -> int:
    return round(10 * min(1.0, max(0.0, part)))


def _gib(mib: int) -> str:
    return f"{mib / 1024:.0f} GiB" if mib >= 1024 else f"{mib} MiB"
