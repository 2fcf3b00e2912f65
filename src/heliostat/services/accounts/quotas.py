"""GPU quotas: changing them, and the check of queued GPUs at submission.

The scheduler enforces the limits on running GPUs and on GPU-hours per month.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from heliostat.errors import Conflict
from heliostat.models import Job, Quota
from heliostat.models.amounts import format_number
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.quotas import count_occupied_gpus
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.services.context import Context
from heliostat.store.database import Transaction
from heliostat.store.projects_and_quotas import QuotaLevel, set_quota
from heliostat.store.usage import list_unfinished_exclusive_jobs, sum_requested_gpus

QuotaChange = Mapping[str, int | None]
"""The limits to set, by their name in `Quota`; None removes a limit."""


def change_quota(
    tx: Transaction, scope: QuotaLevel, name: str, quota: Quota, changes: QuotaChange
) -> dict[str, object]:
    """Store the changed limits. Returns old and new value of each, for the audit log."""
    changed = replace(quota, **changes)
    if changed == quota:
        return {}
    set_quota(tx, scope, name, changed)
    before = {limit: getattr(quota, limit) for limit in changes}
    return {limit: [before[limit], value] for limit, value in changes.items() if value != before[limit]}


def check_queued_gpu_quota(context: Context, conn: Connection, jobs: Sequence[Job]) -> None:
    """Raises Conflict if these jobs exceed a quota of queued GPUs. An exclusive job counts all GPUs of its nodes.

    Called inside the transaction that adds the jobs, so that two concurrent submissions cannot both use the
    last free GPUs of a quota.
    """
    if not context.scheduling_rules.has_queued_gpu_quota():
        return
    if not any(job.resources.gpus or job.placement.exclusive for job in jobs):
        return
    accounts, others = context.scheduling_rules.share_accounts(), list_unfinished_exclusive_jobs(conn)
    needs_nodes = others or any(job.placement.exclusive for job in jobs)
    nodes = NodeTable(context.node_inventory.nodes() if needs_nodes else ())
    before, more = defaultdict(float, sum_requested_gpus(conn)), defaultdict[tuple[str, str], float](float)
    for counted, into in ((others, before), (jobs, more)):
        for job in counted:
            into[job.user, job.project] += count_occupied_gpus(job, nodes, accounts)
    for user, project in more:
        for limit in _limits(accounts, user, project):
            limit.check(_total(accounts, before, limit), _total(accounts, more, limit))


@dataclass(frozen=True, slots=True)
class _Limit:
    scope: QuotaLevel
    name: str
    maximum: int

    def check(self, before: float, more: float) -> None:
        if before + more <= self.maximum:
            return
        raise Conflict(
            f"The quota of {self.scope} {self.name} is {_gpus(self.maximum)} for waiting and running jobs: "
            f"its unfinished jobs request {format_number(before)}, this request adds {format_number(more)}.",
            "Wait until some jobs have ended, request fewer GPUs, or ask an admin: "
            f"helio {self.scope} set {self.name} --queued-gpus {math.ceil(before + more)}.",
            code="quota",
        )


def _limits(accounts: ShareAccounts, user: str, project: str) -> list[_Limit]:
    department = accounts.department_of(project)
    limits = (
        (QuotaLevel.USER, user, accounts.quota_of_user(user)),
        (QuotaLevel.PROJECT, project, accounts.project_or_default(project).quota),
        (QuotaLevel.DEPARTMENT, department.name, department.quota),
    )
    return [
        _Limit(scope, name, maximum) for scope, name, quota in limits if (maximum := quota.queued_gpus) is not None
    ]


def _total(accounts: ShareAccounts, gpus: Mapping[tuple[str, str], float], limit: _Limit) -> float:
    return sum(count for (user, project), count in gpus.items() if _counts(accounts, user, project, limit))


def _counts(accounts: ShareAccounts, user: str, project: str, limit: _Limit) -> bool:
    match limit.scope:
        case QuotaLevel.USER:
            return user == limit.name
        case QuotaLevel.PROJECT:
            return project == limit.name
        case QuotaLevel.DEPARTMENT:
            return accounts.project_or_default(project).department == limit.name


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
