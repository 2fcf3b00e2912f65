"""What one person may still have: their part of the cluster by shares, and how far their quotas are used up."""

from collections.abc import Callable
from dataclasses import dataclass

from heliostat.models import Caller, Job, Quota
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.machines import Machines
from heliostat.scheduling.quotas import Quotas, gpus_kept, quota_of, scopes_of
from heliostat.services.accounts.shares import share_tree
from heliostat.services.context import Context
from heliostat.store.usage import gpus_asked_for, unfinished_exclusive_jobs

Scope = tuple[str, str]  # ("user", "ann"), ("project", "vision")…


@dataclass(frozen=True, slots=True)
class ShareLine:
    """How one stands in one of one's projects."""

    project: str
    entitled: float | None  # part of the cluster; None: not in use lately
    ratio: float  # how many times that was used lately


@dataclass(frozen=True, slots=True)
class QuotaLine:
    scope: str  # user, project, department
    name: str
    limit: str  # as in models.Quota
    most: int
    used: float


def my_shares(context: Context, caller: Caller) -> tuple[ShareLine, ...]:
    """In every project one belongs to."""
    mine = {membership.project for membership in caller.user.memberships}
    projects = (project for department in share_tree(context, caller) for project in department.below)
    found = []
    for project in projects:
        if project.name in mine:
            me = next((one for one in project.below if one.name == caller.user.name), None)
            found.append(ShareLine(project.name, me.entitled if me else None, me.ratio if me else 0.0))
    return tuple(found)


def my_quotas(context: Context, caller: Caller) -> tuple[QuotaLine, ...]:
    """Of oneself, one's projects and their departments: every limit that is set."""
    accounts = context.rules.accounts()
    mine = _scopes(accounts, caller)
    limits = [(scope, quota) for scope in mine if (quota := quota_of(scope, accounts)) != Quota()]
    if not limits:
        return ()
    used = {
        "running_gpus": _running,
        "queued_gpus": _queued,
        "gpu_hours_per_month": _month,
    }
    count: dict[str, Callable[[Scope], float]] = {
        name: make(context, accounts)
        for name, make in used.items()
        if any(getattr(quota, name) is not None for _, quota in limits)
    }
    return tuple(
        QuotaLine(*scope, name, getattr(quota, name), round(counted(scope), 2))
        for scope, quota in limits
        for name, counted in count.items()
        if getattr(quota, name) is not None
    )


def _scopes(accounts: Accounts, caller: Caller) -> list[Scope]:
    found: dict[Scope, None] = {("user", caller.user.name): None}
    for membership in caller.user.memberships:
        found |= dict.fromkeys(scopes_of(caller.user.name, membership.project, accounts))
    return list(found)


def _running(context: Context, accounts: Accounts) -> Callable[[Scope], float]:
    active, _ = context.controller.tally()
    return _sum_of(active, context, accounts, {})


def _queued(context: Context, accounts: Accounts) -> Callable[[Scope], float]:
    with context.store.read() as conn:
        asked, alone = gpus_asked_for(conn), unfinished_exclusive_jobs(conn)
    return _sum_of(alone, context, accounts, asked)


def _month(context: Context, accounts: Accounts) -> Callable[[Scope], float]:
    """As the scheduler counts: also what running jobs may still use."""
    now, board = context.now(), context.controller.fork()
    month = Quotas(board.snapshot(now), board.policy, now.timestamp()).month
    return lambda scope: month[scope]


def _sum_of(
    jobs: list[Job], context: Context, accounts: Accounts, asked: dict[tuple[str, str], float]
) -> Callable[[Scope], float]:
    machines = Machines(context.fleet.nodes())
    sums: dict[Scope, float] = {}
    kept = [((job.user, job.project), gpus_kept(job, machines, accounts)) for job in jobs]
    for (user, project), gpus in [*asked.items(), *kept]:
        for scope in scopes_of(user, project, accounts):
            sums[scope] = sums.get(scope, 0.0) + gpus
    return lambda scope: sums.get(scope, 0.0)
