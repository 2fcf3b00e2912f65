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
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.machines import Machines
from heliostat.scheduling.quotas import gpus_kept
from heliostat.services.context import Context
from heliostat.store.accounts import Scope, set_quota
from heliostat.store.database import Transaction
from heliostat.store.usage import gpus_asked_for, unfinished_exclusive_jobs

QuotaChange = Mapping[str, int | None]
"""The limits to set, by their name in `Quota`; None takes one away."""


def change_quota(tx: Transaction, scope: Scope, name: str, quota: Quota, wish: QuotaChange) -> dict[str, object]:
    """Set what differs; what was before and is now, for the audit log."""
    changed = replace(quota, **wish)
    if changed == quota:
        return {}
    set_quota(tx, scope, name, changed)
    before = {limit: getattr(quota, limit) for limit in wish}
    return {limit: [before[limit], value] for limit, value in wish.items() if value != before[limit]}


def check_queued(context: Context, conn: Connection, jobs: Sequence[Job]) -> None:
    """Refuse jobs that would let somebody have more GPUs in the queue than their quota says. They count as running
    ones do: a job that is alone on its nodes, with all GPUs there.

    Inside the transaction that adds them, so that two at once cannot both take the last room.
    """
    if not context.rules.limits_queued_gpus():
        return
    if not any(job.resources.gpus or job.placement.exclusive for job in jobs):
        return
    accounts, others = context.rules.accounts(), unfinished_exclusive_jobs(conn)
    nodes_matter = others or any(job.placement.exclusive for job in jobs)
    machines = Machines(context.fleet.nodes() if nodes_matter else ())
    before, more = defaultdict(float, gpus_asked_for(conn)), defaultdict[tuple[str, str], float](float)
    for counted, into in ((others, before), (jobs, more)):
        for job in counted:
            into[job.user, job.project] += gpus_kept(job, machines, accounts)
    for user, project in more:
        for one in _limits(accounts, user, project):
            one.check(_total(accounts, before, one), _total(accounts, more, one))


@dataclass(frozen=True, slots=True)
class _Limit:
    scope: Scope
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


def _limits(accounts: Accounts, user: str, project: str) -> list[_Limit]:
    department = accounts.department_of(project)
    limits = (
        (Scope.USER, user, accounts.user_quota(user)),
        (Scope.PROJECT, project, accounts.project(project).quota),
        (Scope.DEPARTMENT, department.name, department.quota),
    )
    return [_Limit(scope, name, most) for scope, name, quota in limits if (most := quota.queued_gpus) is not None]


def _total(accounts: Accounts, gpus: Mapping[tuple[str, str], float], limit: _Limit) -> float:
    return sum(asked for (user, project), asked in gpus.items() if _counts(accounts, user, project, limit))


def _counts(accounts: Accounts, user: str, project: str, limit: _Limit) -> bool:
    match limit.scope:
        case Scope.USER:
            return user == limit.name
        case Scope.PROJECT:
            return project == limit.name
        case Scope.DEPARTMENT:
            return accounts.project(project).department == limit.name


def _gpus(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count} GPUs"
