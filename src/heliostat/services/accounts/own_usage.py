"""The caller's own fair shares and quota usage."""

from collections.abc import Callable
from dataclasses import dataclass

from heliostat.models import Caller, Job, Quota
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.quotas import QuotaTracker, count_occupied_gpus, find_quota, quota_keys
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.services.accounts.share_tree import share_tree
from heliostat.services.context import Context
from heliostat.store.usage import list_unfinished_exclusive_jobs, sum_requested_gpus

ScopeKey = tuple[str, str]  # ("user", "ann"), ("project", "vision")…


@dataclass(frozen=True, slots=True)
class OwnShareUsage:
    """Fair share of a user in one project."""

    project: str
    entitled: float | None  # fraction of the cluster; None: no recent usage
    usage_ratio: float  # recent usage divided by the entitled fraction


@dataclass(frozen=True, slots=True)
class QuotaUsage:
    scope: str  # user, project, department
    name: str
    limit_name: str  # as in models.Quota
    maximum: int
    used: float


def list_own_share_usage(context: Context, caller: Caller) -> tuple[OwnShareUsage, ...]:
    """In every project of the caller."""
    own_projects = {membership.project for membership in caller.user.memberships}
    projects = (project for department in share_tree(context, caller) for project in department.children)
    usages = []
    for project in projects:
        if project.name in own_projects:
            own = next((user for user in project.children if user.name == caller.user.name), None)
            usages.append(OwnShareUsage(project.name, own.entitled if own else None, own.ratio if own else 0.0))
    return tuple(usages)


def list_own_quota_usage(context: Context, caller: Caller) -> tuple[QuotaUsage, ...]:
    """Every limit that is set for the caller, the caller's projects and their departments."""
    accounts = context.scheduling_rules.share_accounts()
    scopes = _scopes(accounts, caller)
    limits = [(scope, quota) for scope in scopes if (quota := find_quota(scope, accounts)) != Quota()]
    if not limits:
        return ()
    counters = {
        "running_gpus": _running,
        "queued_gpus": _queued,
        "gpu_hours_per_month": _month,
    }
    count: dict[str, Callable[[ScopeKey], float]] = {
        name: make(context, accounts)
        for name, make in counters.items()
        if any(getattr(quota, name) is not None for _, quota in limits)
    }
    return tuple(
        QuotaUsage(*scope, name, getattr(quota, name), round(counted(scope), 2))
        for scope, quota in limits
        for name, counted in count.items()
        if getattr(quota, name) is not None
    )


def _scopes(accounts: ShareAccounts, caller: Caller) -> list[ScopeKey]:
    scopes: dict[ScopeKey, None] = {("user", caller.user.name): None}
    for membership in caller.user.memberships:
        scopes |= dict.fromkeys(quota_keys(caller.user.name, membership.project, accounts))
    return list(scopes)


def _running(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    active, _ = context.controller.active_jobs_and_pending_count()
    return _sum_of(active, context, accounts, {})


def _queued(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    with context.store.read() as conn:
        requested, exclusive_jobs = sum_requested_gpus(conn), list_unfinished_exclusive_jobs(conn)
    return _sum_of(exclusive_jobs, context, accounts, requested)


def _month(context: Context, accounts: ShareAccounts) -> Callable[[ScopeKey], float]:
    """As the scheduler counts: including what running jobs may still use."""
    now, queue_state = context.now(), context.controller.copy_queue_state()
    month = QuotaTracker(queue_state.snapshot(now), queue_state.policy, now.timestamp()).month_gpu_hours
    return lambda scope: month[scope]


def _sum_of(
    jobs: list[Job], context: Context, accounts: ShareAccounts, requested: dict[tuple[str, str], float]
) -> Callable[[ScopeKey], float]:
    nodes = NodeTable(context.node_inventory.nodes())
    sums: dict[ScopeKey, float] = {}
    occupied = [((job.user, job.project), count_occupied_gpus(job, nodes, accounts)) for job in jobs]
    for (user, project), gpus in [*requested.items(), *occupied]:
        for scope in quota_keys(user, project, accounts):
            sums[scope] = sums.get(scope, 0.0) + gpus
    return lambda scope: sums.get(scope, 0.0)
