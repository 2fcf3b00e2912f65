"""What one person may still have: their part of the cluster by shares, and how far their quotas are used up."""

from collections.abc import Callable
from dataclasses import dataclass

from heliostat.models import Caller, Job, Quota
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.quotas import QuotaTracker, count_occupied_gpus, find_quota, quota_keys
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.services.accounts.shares import share_tree
from heliostat.services.context import Context
from heliostat.store.usage import list_unfinished_exclusive_jobs, sum_requested_gpus

ScopeKey = tuple[str, str]  # ("user", "ann"), ("project", "vision")…


@dataclass(frozen=True, slots=True)
class OwnShareUsage:
    """How one stands in one of one's projects."""

    project: str
    entitled: float | None  # part of the cluster; None: not in use lately
    usage_ratio: float  # how many times that was used lately


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    scope: str  # user, project, department
    name: str
    limit_name: str  # as in models.Quota
    maximum: int
    used: float


def list_own_share_usage(context: Context, caller: Caller) -> tuple[OwnShareUsage, ...]:
    """In every project one belongs to."""
    mine = {membership.project for membership in caller.user.memberships}
    projects = (project for department in share_tree(context, caller) for project in department.children)
    found = []
    for project in projects:
        if project.name in mine:
            me = next((one for one in project.children if one.name == caller.user.name), None)
            found.append(OwnShareUsage(project.name, me.entitled if me else None, me.ratio if me else 0.0))
    return tuple(found)


def list_own_quota_usage(context: Context, caller: Caller) -> tuple[QuotaUsage, ...]:
    """Of oneself, one's projects and their departments: every limit that is set."""
    accounts = context.scheduling_rules.share_accounts()
    mine = _scopes(accounts, caller)
    limits = [(scope, quota) for scope in mine if (quota := find_quota(scope, accounts)) != Quota()]
    if not limits:
        return ()
    used = {
        "running_gpus": _running,
        "queued_gpus": _queued,
        "gpu_hours_per_month": _month,
    }
    count: dict[str, Callable[[ScopeKey], float]] = {
        name: make(context, accounts)
        for name, make in used.items()
        if any(getattr(quota, name) is not None for _, quota in limits)
    }
    return tuple(
        QuotaUsage(*scope, name, getattr(quota, name), round(counted(scope), 2))
        for scope, quota in limits
        for name, counted in count.items()
        if getattr(quota, name) is not None
    )


def _scopes(accounts: ShareAccounts, caller: Caller) -> list[ScopeKey]:
    found: dict[ScopeKey, None] = {("user", caller.user.name): None}
    for membership in caller.user.memberships:
        found |= dict.fromkeys(quota_keys(caller.user.name, membership.project, accounts))
    return list(found)


def _running(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    active, _ = context.controller.active_jobs_and_pending_count()
    return _sum_of(active, context, accounts, {})


def _queued(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    with context.store.read() as conn:
        asked, alone = sum_requested_gpus(conn), list_unfinished_exclusive_jobs(conn)
    return _sum_of(alone, context, accounts, asked)


def _month(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    """As the scheduler counts: also what running jobs may still use."""
    now, board = context.now(), context.controller.copy_queue_state()
    month = QuotaTracker(board.snapshot(now), board.policy, now.timestamp()).month_gpu_hours
    return lambda scope: month[scope]


def _sum_of(
    jobs: list[Job], context: Context, accounts: ShareAccounts, asked: dict[tuple[str, str], float]
) -> Callable[[ScopeKey], float]:
    machines = NodeTable(context.node_inventory.nodes())
    sums: dict[ScopeKey, float] = {}
    kept = [((job.user, job.project), count_occupied_gpus(job, machines, accounts)) for job in jobs]
    for (user, project), gpus in [*asked.items(), *kept]:
        for scope in quota_keys(user, project, accounts):
            sums[scope] = sums.get(scope, 0.0) + gpus
    return lambda scope: sums.get(scope, 0.0)
