"""Reference implementation of priority points, with plain loops."""

import math
from collections import defaultdict
from collections.abc import Iterable

from heliostat.models import Job
from unit.scheduling.builders import NOW
from unit.scheduling.random_cases import Case

Account = tuple[str, ...]  # (department,), (department, project), (department, project, user)
FLOOR_HOURS, SMALLEST, MOST_OVER, PER_PRIORITY = 24.0, 0.1, 8.0, 3.0
FIRST_JOB_SHARES = 2.0  # of a user who has used nothing
RESOLUTION = math.pi * 1e-9  # smaller differences do not count; of equals, the one submitted first
MORE = 1e-6  # points of an overdue job than others
HIGHEST_RANK, HIGHEST_POINTS = 2, 4.0  # of a class without a budget


def reference_points(case: Case) -> dict[int, float]:
    """Class and priority, minus size, plus wait, minus usage of the user relative to the share in the project."""
    plain = {job.id: _class_points(case, job) + _in_project(case, job) for job in case.pending}
    usage = _usage(case)
    ahead: defaultdict[Account, float] = defaultdict(float)
    found: dict[int, float] = {}
    seen = {job.user for job in case.running}
    for job in _sorted(case, case.pending, plain):
        account = _accounts(case, job)[2]
        ratio = (usage[account] + ahead[account]) / _part(case, usage, account)
        over = min(ratio, MOST_OVER) - FIRST_JOB_SHARES * (job.user not in seen)
        found[job.id] = plain[job.id] - case.policy.share_weight * over
        seen.add(job.user)
        ahead[account] += _advance(case, job)
    return found


def reference_order(case: Case) -> list[int]:
    """By points; then the projects of a department and the departments by their usage relative to their shares."""
    points, overdue = reference_points(case), _overdue_heads(case)
    most = max((points[job.id] for job in case.pending if _rank(case, job) <= HIGHEST_RANK), default=-math.inf)
    points |= {job.id: max(points[job.id], most + MORE) for job in overdue}
    in_order = _sorted(case, sorted(case.pending, key=lambda job: job.id), points)
    usage = _usage(case)
    for level in (1, 0):
        ahead: defaultdict[Account, float] = defaultdict(float)
        turns = {}
        for job in in_order:
            account = _accounts(case, job)[level]
            ratio = (usage[account] + ahead[account]) / _part(case, usage, account)
            class_points = max(_class_points(case, job), HIGHEST_POINTS if job in overdue else -math.inf)
            turns[job.id] = class_points - case.policy.share_weight * ratio
            ahead[account] += _advance(case, job)
        if len({_accounts(case, other)[level] for other in case.jobs}) > 1:
            in_order = _sorted(case, in_order, turns)
    return [job.id for job in _booked_first(case, in_order, overdue)]


def _overdue_heads(case: Case) -> list[Job]:
    """In each project the job that has waited longest, for a month, if older jobs use less than an eighth."""
    heads = []
    for project in {job.project for job in case.jobs}:
        waiting = [job for job in case.pending if job.project == project and _rank(case, job) > 0]
        oldest = max(waiting, key=lambda job: (job.queue_wait_seconds(NOW), -job.id), default=None)
        if oldest is None or oldest.queue_wait_seconds(NOW) <= case.policy.overdue_seconds:
            continue
        running = [job for job in case.running if job.project == project]
        older = [job for job in running if _queued_for(job) >= oldest.queue_wait_seconds(NOW)]
        used, used_by_older = (sum(_per_hour(case, job) for job in jobs) for jobs in (running, older))
        if used_by_older == 0 or used_by_older < case.policy.overdue_fraction * used:
            heads.append(oldest)
    return heads


def _queued_for(running: Job) -> float:
    """Since when it has waited or run, without what it ran before."""
    assert running.started_at is not None
    return running.waited_seconds + (NOW - running.started_at).total_seconds()


def _sorted(case: Case, jobs: Iterable[Job], points: dict[int, float]) -> list[Job]:
    return _preemptible_last(case, sorted(jobs, key=lambda job: -round(points[job.id] / RESOLUTION)))


def _booked_first(case: Case, jobs: list[Job], overdue: list[Job]) -> list[Job]:
    """Booked jobs, oldest booking first, move ahead of all jobs that are not of a higher class, and never back."""
    result = [job for job in jobs if not job.is_booked]
    at_least = 0
    for job in sorted((job for job in jobs if job.is_booked), key=lambda job: job.booked_at or NOW):
        rank = max(_rank(case, job), HIGHEST_RANK if job in overdue else 0)
        others_ahead = {other.id for other in jobs[: jobs.index(job)] if not other.is_booked}
        place = 0
        while place < len(result) and (
            result[place].is_booked or (result[place].id in others_ahead and _rank(case, result[place]) > rank)
        ):
            place += 1
        place = max(place, at_least)
        result.insert(place, job)
        at_least = place + 1
    return result


def _preemptible_last(case: Case, jobs: list[Job]) -> list[Job]:
    """Preemptible jobs move behind the last job of a higher class; highest classes first."""
    for rank in (2, 1, 0):
        mine = [job for job in jobs if _yields(case, job) and _rank(case, job) == rank]
        higher = [place for place, job in enumerate(jobs) if _rank(case, job) > rank]
        before = [job for job in mine if higher and jobs.index(job) < higher[-1]]
        if before:
            last = jobs[higher[-1]]
            jobs = [job for job in jobs if job not in before]
            place = jobs.index(last) + 1
            jobs = jobs[:place] + before + jobs[place:]
    return jobs


def _yields(case: Case, job: Job) -> bool:
    if not case.policy.preempts:
        return _rank(case, job) == 0
    return job.preemptible or case.policy.find_priority_class(job.priority_class).preemptible


def _rank(case: Case, job: Job) -> int:
    return case.policy.find_priority_class(job.priority_class).rank


def _class_points(case: Case, job: Job) -> float:
    kind = case.policy.find_priority_class(job.priority_class)
    return kind.points + PER_PRIORITY * (job.priority if job.priority_everywhere else min(job.priority, 0))


def _in_project(case: Case, job: Job) -> float:
    waited = job.queue_wait_seconds(NOW) / 3600 + 1
    priority = 0 if job.priority_everywhere else max(job.priority, 0)
    size = math.log2(_cost(case, job) + SMALLEST)
    return PER_PRIORITY * priority - size + math.log2(waited)


def _per_hour(case: Case, job: Job) -> float:
    wanted = job.resources
    return case.gpus(job) + job.placement.tasks * (0.02 * wanted.cpus + 0.002 * wanted.memory_mib / 1024)


def _cost(case: Case, job: Job) -> float:
    return _per_hour(case, job) * case.limit(job) / 3600


def _advance(case: Case, job: Job) -> float:
    return _per_hour(case, job) * min(case.limit(job), case.policy.max_advance_seconds) / 3600


def _accounts(case: Case, job: Job) -> tuple[Account, Account, Account]:
    department = case.accounts.project_or_default(job.project).department
    return (department,), (department, job.project), (department, job.project, job.user)


def _usage(case: Case) -> defaultdict[Account, float]:
    """Usage of running jobs: decayed so far, and what is charged in advance."""
    found: defaultdict[Account, float] = defaultdict(float)
    half_life = case.policy.half_life_seconds
    for job in case.running:
        assert job.started_at is not None
        age = (NOW - job.started_at).total_seconds()
        so_far = half_life / math.log(2) * (1 - 2 ** (-age / half_life))
        ahead = min(max(case.limit(job) - age, 0), case.policy.max_advance_seconds)
        for account in _accounts(case, job):
            found[account] += _per_hour(case, job) / 3600 * (so_far + ahead)
    return found


def _part(case: Case, usage: dict[Account, float], account: Account) -> float:
    """Its share of the usage of its parent, with the floor."""
    siblings = {
        other
        for job in case.jobs
        for other in _accounts(case, job)
        if other[:-1] == account[:-1] and len(other) == len(account)
    }
    share = _share(case, account) / sum(_share(case, other) for other in siblings)
    whole = sum(usage[other] for other in siblings)
    return max((whole + _floor(case, account[:-1])) * share, 1e-9)


def _floor(case: Case, account: Account) -> float:
    if account:
        siblings = {other[: len(account)] for job in case.jobs for other in [_accounts(case, job)[2]]}
        siblings = {other for other in siblings if other[:-1] == account[:-1]}
        share = _share(case, account) / sum(_share(case, other) for other in siblings)
        return _floor(case, account[:-1]) * share
    gpus = sum(device.is_available for node in case.nodes for device in node.devices)
    cpus, memory = sum(node.cpus for node in case.nodes), sum(node.memory_mib for node in case.nodes)
    return FLOOR_HOURS * (gpus + 0.02 * cpus + 0.002 * memory / 1024)


def _share(case: Case, account: Account) -> float:
    if len(account) == 1:
        return case.accounts.department_or_default(account[0]).share
    return case.accounts.project_or_default(account[1]).share if len(account) == 2 else 1
