"""Rules for a new reservation, from an admin or from the policy file of a replay. Pure."""

from collections.abc import Iterable, Mapping
from datetime import timedelta

from heliostat.models import Node, Reservation
from heliostat.models.reservations import MAX_RESERVATION_WEEKS
from heliostat.scheduling.feasibility import matching_devices

MAX_DURATION = timedelta(days=366)
_WEEK = timedelta(weeks=1)
FieldProblem = tuple[str, str]
"""A field, and what is wrong with it."""


def find_field_problem(requested: Reservation, nodes: Mapping[str, Node]) -> FieldProblem | None:
    """The first problem. `nodes`: all nodes of the cluster by name."""
    return (
        _find_node_problem(requested, nodes)
        or _find_time_problem(requested)
        or _find_gpu_problem(requested, [nodes[name] for name in requested.nodes])
    )


def find_conflict(
    requested: Reservation, others: Iterable[Reservation], nodes: Mapping[str, Node]
) -> tuple[Node, Reservation] | None:
    """A node that another reservation has at that time. Several may have GPUs of one node, up to all of them."""
    overlapping = [other for other in others if other.overlaps(requested)]
    for node in (nodes[name] for name in requested.nodes):
        on_node = [other for other in overlapping if node.name in other.nodes]
        whole_node = [other for other in on_node if None in (other.gpus_per_node, requested.gpus_per_node)]
        if whole_node:
            return node, whole_node[0]
        if on_node and _max_reserved_gpus(requested, on_node) > _count_gpus(node):
            return node, on_node[0]
    return None


def _find_node_problem(requested: Reservation, nodes: Mapping[str, Node]) -> FieldProblem | None:
    if not requested.nodes:
        return "nodes", "must name at least one node"
    for name in requested.nodes:
        if name not in nodes:
            return "nodes", f"there is no node {name[:64]!a}"
    if len(set(requested.nodes)) != len(requested.nodes):
        return "nodes", "names a node twice"
    return None


def _find_time_problem(requested: Reservation) -> FieldProblem | None:
    duration = requested.ends_at - requested.starts_at
    if duration <= timedelta(0):
        return "ends_at", "must be after starts_at"
    if duration > MAX_DURATION:
        return "ends_at", f"must be at most {MAX_DURATION.days} days after starts_at"
    if not 1 <= requested.weeks <= MAX_RESERVATION_WEEKS:
        return "weeks", f"must be between 1 and {MAX_RESERVATION_WEEKS}"
    if requested.weeks > 1 and duration >= _WEEK:
        return "weeks", "only a reservation shorter than a week can be repeated weekly"
    return None


def _find_gpu_problem(requested: Reservation, nodes: Iterable[Node]) -> FieldProblem | None:
    if requested.gpus_per_node is None:
        return None
    if requested.gpus_per_node < 1:
        return "gpus_per_node", "must be at least 1; omit it for whole nodes"
    for node in nodes:
        if _count_gpus(node) < requested.gpus_per_node:
            return "gpus_per_node", f"node {node.name} has only {_count_gpus(node)} GPUs"
    return None


def _count_gpus(node: Node) -> int:
    """Without MIG slices, which are reserved only with the whole node."""
    return len(matching_devices(node, None))


def _max_reserved_gpus(requested: Reservation, others: Iterable[Reservation]) -> int:
    """The maximum of reserved GPUs on one node while `requested` is active. It is reached when an occurrence
    begins."""
    together = (requested, *others)
    moments = {starts_at for each in together for starts_at, _ in each.occurrences(requested.starts_at)}
    return max(
        sum(each.gpus_per_node or 0 for each in together if each.is_active_at(moment))
        for moment in moments
        if requested.is_active_at(moment)
    )
