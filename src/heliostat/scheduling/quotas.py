"""Quotas of users, projects and departments (running GPUs, GPU-hours per month) and limits of job arrays."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from heliostat.models import ACTIVE_STATES, Job, Quota
from heliostat.models.amounts import format_count, format_number
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Snapshot

QuotaKey = tuple[str, str]  # ("user", "ann"), ("project", "vision"), ("department", "radiology")


@dataclass(frozen=True, slots=True)
class QuotaViolation:
    """The quota that blocks a job."""

    quota_key: QuotaKey
    message: str
    until_next_month: bool = False


class QuotaTracker:
    """Usage against quotas, updated while a plan is made."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._accounts = snapshot.accounts
        self.has_any = has_quotas(snapshot.accounts)
        self._running: defaultdict[QuotaKey, float] = defaultdict(float)
        self._month: defaultdict[QuotaKey, float] | None = None
        if self.has_any and len(snapshot.running):
            self._count_running()

    def find_violation(self, job: Job, gpus: float) -> QuotaViolation | None:
        """The quota that does not allow this job to start now."""
        budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month
        if budget is not None and self.month_gpu_hours[priority_class_quota_key(job)] >= budget:
            message = (
                f"project {job.project} has used its {_hours(budget)} of class {job.priority_class} this month"
            )
            return QuotaViolation(priority_class_quota_key(job), message, until_next_month=True)
        if not self.has_any or not gpus:
            return None
        for scope in quota_keys(job.user, job.project, self._accounts):
            if violation := self._check_quota(scope, find_quota(scope, self._accounts), gpus):
                return violation
        return None

    @property
    def month_gpu_hours(self) -> defaultdict[QuotaKey, float]:
        """GPU-hours of this month, with those of running jobs up to their time limits."""
        if self._month is None:
            self._month = defaultdict(float, self._snapshot.month_gpu_hours)
            running = self._snapshot.running
            limit = np.where(running["has_limit"], running["limit"], self._policy.assumed_limit_seconds)
            until = np.maximum(running["started"] + limit, self._now)
            seconds = until - np.maximum(running["started"], self._snapshot.month_start)
            hours = running["gpus"] * np.maximum(seconds, 0.0) / 3600.0
            for job_id, used in zip(running["job"].tolist(), hours.tolist(), strict=True):
                if job := self._snapshot.jobs.get(job_id):
                    for scope in (
                        *quota_keys(job.user, job.project, self._accounts),
                        priority_class_quota_key(job),
                    ):
                        self._month[scope] += used
        return self._month

    def _count_running(self) -> None:
        running, leaves = self._snapshot.running, self._snapshot.share_tree.leaves
        per_leaf = np.bincount(running["leaf"], running["gpus"], len(leaves))
        for (project, user), gpus in zip(leaves, per_leaf.tolist(), strict=True):
            for scope in quota_keys(user, project, self._accounts):
                self._running[scope] += gpus

    def add_started_job(self, job: Job, gpus: float) -> None:
        """Count a job that this plan starts."""
        has_budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month is not None
        if not self.has_any and not has_budget:
            return
        hours = gpus * (job.time_limit_seconds or self._policy.assumed_limit_seconds) / 3600.0
        for scope in quota_keys(job.user, job.project, self._accounts):
            self._running[scope] += gpus
            self.month_gpu_hours[scope] += hours
        self.month_gpu_hours[priority_class_quota_key(job)] += hours

    def _check_quota(self, scope: QuotaKey, quota: Quota, gpus: float) -> QuotaViolation | None:
        kind, name = scope
        if quota.running_gpus is not None and self._running[scope] + gpus > quota.running_gpus + 1e-9:
            limit, used = format_count(quota.running_gpus, "GPU"), format_number(self._running[scope])
            message = f"exceeds the quota of {kind} {name}: {limit} at once, {used} in use"
            return QuotaViolation(scope, message)
        if quota.gpu_hours_per_month is not None and self.month_gpu_hours[scope] >= quota.gpu_hours_per_month:
            hours = _hours(quota.gpu_hours_per_month)
            message = f"{kind} {name} has used its {hours} of this month, running jobs included"
            return QuotaViolation(scope, message, until_next_month=True)
        return None


class ArrayLimits:
    """Number of running jobs of each array, updated while a plan is made."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._running: Counter[int] = Counter()
        arrays = snapshot.running["array"]
        if len(arrays) and (arrays >= 0).any():
            jobs = np.unique(snapshot.running["job"][arrays >= 0]).tolist()
            self._running.update(snapshot.jobs[job_id].array_id or 0 for job_id in jobs)

    def is_at_limit(self, job: Job) -> bool:
        return job.array_limit is not None and self._running[job.array_id or 0] >= job.array_limit

    def add_started_job(self, job: Job) -> None:
        if job.array_id is not None:
            self._running[job.array_id] += 1


def count_occupied_gpus(job: Job, node_table: NodeTable, accounts: ShareAccounts) -> float:
    """GPUs that are not available to others because of this job. An exclusive job occupies all GPUs of its nodes;
    while it is pending, the most that it may occupy."""
    requested = job.resources.cards * job.placement.tasks
    if not job.placement.exclusive or not len(node_table.nodes):
        return requested
    per_node = node_table.cards
    if job.state in ACTIVE_STATES:
        nodes = {place.node for place in job.task_placements if place.node in node_table.index_by_name}
        return max(requested, float(sum(per_node[node_table.index_by_name[name]] for name in nodes)))
    eligibility = node_table.eligibility_of(
        JobShape(job.resources, job.placement, accounts.project_or_default(job.project).data_class)
    )
    return max(requested, float(per_node[eligibility.eligible_nodes].max(initial=0) * job.placement.tasks))


def quota_keys(user: str, project: str, accounts: ShareAccounts) -> tuple[QuotaKey, QuotaKey, QuotaKey]:
    return ("user", user), ("project", project), ("department", accounts.project_or_default(project).department)


def priority_class_quota_key(job: Job) -> QuotaKey:
    """The monthly budget of a priority class is per project."""
    return f"class {job.priority_class}", job.project


def find_quota(scope: QuotaKey, accounts: ShareAccounts) -> Quota:
    kind, name = scope
    if kind == "user":
        return accounts.quota_of_user(name)
    return (
        accounts.project_or_default(name).quota
        if kind == "project"
        else accounts.department_or_default(name).quota
    )


def has_quotas(accounts: ShareAccounts) -> bool:
    quotas = [project.quota for project in accounts.projects.values()]
    quotas += [department.quota for department in accounts.departments.values()]
    return any(quota != Quota() for quota in (*quotas, *accounts.user_quotas.values()))


def _hours(number: float) -> str:
    return f"{number:g} GPU-hour{'' if number == 1 else 's'}"
