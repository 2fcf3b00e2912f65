"""Which nodes take which data: what to tell an admin whose change leaves running jobs where they should not be.

Nothing is stopped for it: an admin who wants that is told how.
"""

from collections.abc import Mapping

from heliostat.models import ACTIVE_STATES, Job, Node
from heliostat.services.context import Context
from heliostat.store import jobs as stored

MAX_DATA_CLASS = 3
_MOST_NAMED = 20


def accepts_data_class(node: Node, data_class: int) -> bool:
    """Is the node cleared for data of this class, and not kept for more secret ones?"""
    return node.min_data_class <= data_class <= node.data_class


def project_data_class_warning(context: Context, project: str) -> str | None:
    """What the project's present class means for its jobs; None: nothing to worry about."""
    data_class = context.scheduling_rules.share_accounts().project_or_default(project).data_class
    nodes = {node.name: node for node in context.node_inventory.nodes()}
    mine = [job for job in _running(context) if job.project == project]
    told = _told([job for job in mine if not _may_stay(context, job, nodes)])
    if any(accepts_data_class(node, data_class) for node in nodes.values()):
        return told
    nowhere = (
        f"No node takes data of class {data_class}: jobs of {project} wait until one does "
        f"(helio node set NAME --data-class {data_class})."
    )
    return f"{nowhere} {told}" if told else nowhere


def node_data_class_warning(context: Context, node: Node) -> str | None:
    """What the node's present classes mean for the jobs that run there."""
    return _told([job for job in _running(context) if not _may_stay(context, job, {node.name: node})])


def _running(context: Context) -> list[Job]:
    with context.store.read() as conn:
        return stored.list_jobs(conn, stored.JobFilter(states=ACTIVE_STATES), limit=100_000)


def _may_stay(context: Context, job: Job, nodes: Mapping[str, Node]) -> bool:
    """As far as these nodes are concerned."""
    data_class = context.scheduling_rules.share_accounts().project_or_default(job.project).data_class
    names = {place.node for place in job.places} or {job.node or ""}
    return all(accepts_data_class(nodes[name], data_class) for name in names if name in nodes)


def _told(jobs: list[Job]) -> str | None:
    if not jobs:
        return None
    numbers = " ".join(str(job.id) for job in jobs[:_MOST_NAMED]) + (" …" if len(jobs) > _MOST_NAMED else "")
    what = "1 job goes" if len(jobs) == 1 else f"{len(jobs)} jobs go"
    return (
        f"{what} on running where such data should no longer be. To stop and queue again: helio requeue {numbers}"
    )
