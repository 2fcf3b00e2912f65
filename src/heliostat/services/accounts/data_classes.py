"""Data classes of projects and nodes: warnings about running jobs that a change leaves on unsuitable nodes.

Running jobs are not stopped; the warning names the command that does it.
"""

from collections.abc import Mapping

from heliostat.models import ACTIVE_STATES, Job, Node
from heliostat.services.context import Context
from heliostat.store import jobs as stored

MAX_DATA_CLASS = 3
_MAX_LISTED = 20


def accepts_data_class(node: Node, data_class: int) -> bool:
    """Whether the node is cleared for data of this class and not reserved for higher classes."""
    return node.min_data_class <= data_class <= node.data_class


def project_data_class_warning(context: Context, project: str) -> str | None:
    """Jobs of the project that its current data class affects; None: no job."""
    data_class = context.scheduling_rules.share_accounts().project_or_default(project).data_class
    nodes = {node.name: node for node in context.node_inventory.nodes()}
    own_jobs = [job for job in _active_jobs(context) if job.project == project]
    warning = _warning([job for job in own_jobs if not _may_stay(context, job, nodes)])
    if any(accepts_data_class(node, data_class) for node in nodes.values()):
        return warning
    no_node = (
        f"No node accepts data of class {data_class}: waiting jobs of {project} wait until one does, and new ones "
        f"are refused. To clear a node: helio node set NAME --data-class {data_class}"
    )
    return f"{no_node}. {warning}" if warning else no_node


def node_data_class_warning(context: Context, node: Node) -> str | None:
    """Running jobs that the node's current data classes no longer allow there; None: no job."""
    return _warning([job for job in _active_jobs(context) if not _may_stay(context, job, {node.name: node})])


def _active_jobs(context: Context) -> list[Job]:
    with context.store.read() as conn:
        return stored.list_jobs(conn, stored.JobFilter(states=ACTIVE_STATES), limit=100_000)


def _may_stay(context: Context, job: Job, nodes: Mapping[str, Node]) -> bool:
    """Whether these nodes accept the job's data; its other nodes are not checked."""
    data_class = context.scheduling_rules.share_accounts().project_or_default(job.project).data_class
    names = {place.node for place in job.places} or {job.node or ""}
    return all(accepts_data_class(nodes[name], data_class) for name in names if name in nodes)


def _warning(jobs: list[Job]) -> str | None:
    if not jobs:
        return None
    numbers = " ".join(str(job.id) for job in jobs[:_MAX_LISTED]) + (" …" if len(jobs) > _MAX_LISTED else "")
    what = "1 job keeps" if len(jobs) == 1 else f"{len(jobs)} jobs keep"
    return (
        f"{what} running on a node that no longer accepts such data. "
        f"To stop and queue again: helio requeue {numbers}"
    )
