"""Limits on GPUs: setting them, and refusing what would exceed what may be in the queue.

What may run at once and per month is the scheduler's to keep.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from heliostat.errors import Conflict
from heliostat.models import Job, Quota
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.quotas import count_occupied_gpus
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.services.context import Context
from heliostat.store.database import Transaction
from heliostat.store.shares_and_quotas import QuotaLevel, set_quota
from heliostat.store.usage import list_unfinished_exclusive_jobs, sum_requested_gpus

QuotaChange = Mapping[str, int | None]
"""The limits to set, by their name in `Quota`; None takes one away."""


def change_quota(
    tx: Transaction, scope: QuotaLevel, name: str, quota: Quota, wish: QuotaChange
) -> dict[str, object]:
    """Set what differs; what was before and is now, for the audit log."""
    changed = replace(quota, **wish)
    if changed == quota:
        return {}
    set_quota(tx, scope, name, changed)
    before = {limit: getattr(quota, limit) for limit in wish}
    return {limit: [before[limit], value] for limit, value in wish.items() if value != before[limit]}


def check_queued_gpu_quota(context: Context, conn: Connection, jobs: Sequence[Job]) -> None:
    """Refuse jobs that would let somebody have more GPUs in the queue than their quota says. They count as running
    ones do: a job that is alone on its nodes, with all GPUs there.

    Inside the transaction that adds them, so that two at once cannot both take the last room.
    """
    if not context.scheduling_rules.has_queued_gpu_quota():
        return
    if not any(job.resources.gpus or job.placement.exclusive for job in jobs):
        return
    accounts, others = context.scheduling_rules.share_accounts(), list_unfinished_exclusive_jobs(conn)
    nodes_matter = others or any(job.placement.exclusive for job in jobs)
    machines = NodeTable(context.node_inventory.nodes() if nodes_matter else ())
    before, more = defaultdict(float, sum_requested_gpus(conn)), defaultdict[tuple[str, str], float](float)
    for counted, into in ((others, before), (jobs, more)):
        for job in counted:
            into[job.user, job.project] += count_occupied_gpus(job, machines, accounts)
    for user, project in more:
        for one in _limits(accounts, user, project):
            one.check(_total(accounts, before, one), _total(accounts, more, one))


@dataclass(frozen=True, slots=True)
class _Limit:
    scope: QuotaLevel
    name: str
    most: int

    def check(self, before: float, more: float) -> None:
        if before + more <= self.most:
            return
        raise Conflict(
            f"The quota of {self.scope} {self.name} is {_gpus(self.most)} in the queue, running ones included: "
            f"its unfinished jobs ask for {before:g}, and this for {more:g} more.",
            "Wait until some are over, ask for fewer, or ask an admin: "
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
    return [_Limit(scope, name, most) for scope, name, quota in limits if (most := quota.queued_gpus) is not None]


def _total(accounts: ShareAccounts, gpus: Mapping[tuple[str, str], float], limit: _Limit) -> float:
    return sum(asked for (user, project), asked in gpus.items() if _counts(accounts, user, project, limit))


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
