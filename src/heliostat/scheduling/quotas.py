"""Limits on what people, projects, departments and arrays may hold at once, and use in a month."""

from collections import Counter, defaultdict
from dataclasses import dataclass

import numpy as np

from heliostat.models import ACTIVE_STATES, Job, Quota
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.node_table import NodeTable
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.share_accounts import ShareAccounts
from heliostat.scheduling.snapshot import Snapshot

QuotaKey = tuple[str, str]  # ("user", "ann"), ("project", "vision"), ("department", "radiology")


@dataclass(frozen=True, slots=True)
class QuotaViolation:
    """Which limit keeps a job back."""

    quota_key: QuotaKey
    message: str
    until_next_month: bool = False


class QuotaTracker:
    """Counts along while a plan is made."""

    def __init__(self, snapshot: Snapshot, policy: SchedulingPolicy, now: float) -> None:
        self._snapshot, self._policy, self._now = snapshot, policy, now
        self._accounts = snapshot.accounts
        self.has_any = has_quotas(snapshot.accounts)
        self._running: defaultdict[QuotaKey, float] = defaultdict(float)
        self._month: defaultdict[QuotaKey, float] | None = None
        if self.has_any and len(snapshot.running):
            self._count_running()

    def find_violation(self, job: Job, gpus: float) -> QuotaViolation | None:
        """Why it may not start now."""
        budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month
        if budget is not None and self.month_gpu_hours[priority_class_quota_key(job)] >= budget:
            words = f"project {job.project} has used its {_hours(budget)} of class {job.priority_class} this month"
            return QuotaViolation(priority_class_quota_key(job), words, until_next_month=True)
        if not self.has_any or not gpus:
            return None
        for scope in quota_keys(job.user, job.project, self._accounts):
            if refusal := self._over(scope, find_quota(scope, self._accounts), gpus):
                return refusal
        return None

    @property
    def month_gpu_hours(self) -> defaultdict[QuotaKey, float]:
        """GPU-hours of this month, also of what runs, and of what that may still use."""
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
        """It starts."""
        has_budget = self._policy.find_priority_class(job.priority_class).gpu_hours_per_month is not None
        if not self.has_any and not has_budget:
            return
        hours = gpus * (job.time_limit_seconds or self._policy.assumed_limit_seconds) / 3600.0
        for scope in quota_keys(job.user, job.project, self._accounts):
            self._running[scope] += gpus
            self.month_gpu_hours[scope] += hours
        self.month_gpu_hours[priority_class_quota_key(job)] += hours

    def _over(self, scope: QuotaKey, quota: Quota, gpus: float) -> QuotaViolation | None:
        kind, name = scope
        if quota.running_gpus is not None and self._running[scope] + gpus > quota.running_gpus + 1e-9:
            held = self._running[scope]
            words = f"{kind} {name} may run {quota.running_gpus} GPUs at once and holds {held:g}"
            return QuotaViolation(scope, words)
        if quota.gpu_hours_per_month is not None and self.month_gpu_hours[scope] >= quota.gpu_hours_per_month:
            hours = _hours(quota.gpu_hours_per_month)
            words = f"{kind} {name} has used its {hours} of this month, counting what runs"
            return QuotaViolation(scope, words, until_next_month=True)
        return None


class ArrayLimits:
    """How many elements of each array run; only those with a limit are asked for."""

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


def count_occupied_gpus(job: Job, machines: NodeTable, accounts: ShareAccounts) -> float:
    """How many it keeps from others: one that is alone on its nodes, all there are; while it waits, as many as it
    may come to hold."""
    asked = job.resources.gpus * job.placement.tasks
    if not job.placement.exclusive or not len(machines.nodes):
        return asked
    per_node = machines.gpus.sum(axis=1)
    if job.state in ACTIVE_STATES:
        nodes = {place.node for place in job.task_placements if place.node in machines.index_by_name}
        return max(asked, float(sum(per_node[machines.index_by_name[name]] for name in nodes)))
    suitable = machines.eligibility_of(
        JobShape(job.resources, job.placement, accounts.project_or_default(job.project).data_class)
    )
    return max(asked, float(per_node[suitable.eligible_nodes].max(initial=0) * job.placement.tasks))


def quota_keys(user: str, project: str, accounts: ShareAccounts) -> tuple[QuotaKey, QuotaKey, QuotaKey]:
    return ("user", user), ("project", project), ("department", accounts.project_or_default(project).department)


def priority_class_quota_key(job: Job) -> QuotaKey:
    """The budget of a class is per project."""
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
    given = [project.quota for project in accounts.projects.values()]
    given += [department.quota for department in accounts.departments.values()]
    return any(quota != Quota() for quota in (*given, *accounts.user_quotas.values()))


def _hours(number: float) -> str:
    return f"{number:g} GPU-hour{'' if number == 1 else 's'}"
