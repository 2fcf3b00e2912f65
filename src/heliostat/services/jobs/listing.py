"""Job lists: filter, search, sort, pages and counts by state."""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from heliostat.models import Caller, Job, JobState, ProjectRole, User
from heliostat.services.context import Context
from heliostat.services.jobs.explanation import Forecast
from heliostat.services.permissions import may_inspect
from heliostat.store import jobs as stored

T = TypeVar("T")
SORT_KEYS = frozenset(stored.SORT_COLUMNS)
PAGE_SIZE = 50


@dataclass(frozen=True, slots=True)
class JobQuery:
    """Which jobs, in which order; None does not restrict. Without a text, of the ended replicas of a service only
    the newest."""

    states: Collection[JobState] | None = None
    user: str | None = None
    project: str | None = None
    node: str | None = None
    array_id: int | None = None
    text: str | None = None  # an id, or part of a name
    sort: str = "id"  # one of SORT_KEYS
    descending: bool = True
    page: int = 1
    size: int = PAGE_SIZE


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job with the fields that the caller may see; name and reason are None for jobs of others."""

    job: Job
    inspectable: bool
    name: str | None
    reason: str | None = None
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class JobStateCounts:
    by_state: Mapping[JobState, int] = field(default_factory=dict)

    def count(self, *states: JobState) -> int:
        return sum(self.by_state.get(state, 0) for state in states)

    @property
    def total(self) -> int:
        return sum(self.by_state.values())


@dataclass(frozen=True, slots=True)
class JobPage:
    items: tuple[ListedJob, ...]
    counts: JobStateCounts  # of all states, listed or not
    total: int  # of the listed states
    page: int
    pages: int


def list_jobs(context: Context, caller: Caller, query: JobQuery) -> JobPage:
    job_filter = _filter(caller.user, query)
    counts = _count(context, caller, job_filter)
    total = counts.total if query.states is None else counts.count(*query.states)
    pages = max(1, math.ceil(total / query.size))
    page = min(max(1, query.page), pages)
    part = stored.JobListPage(query.sort, query.descending, (page - 1) * query.size, query.size)
    states = None if query.states is None else frozenset(query.states)
    jobs = _read(context, caller, (replace(job_filter, states=states), part), stored.list_jobs_page)
    return JobPage(tuple(listed_job_for(context, caller.user, job) for job in jobs), counts, total, page, pages)


def listed_job_for(context: Context, user: User, job: Job) -> ListedJob:
    if not may_inspect(user, job):
        return ListedJob(job, False, None)
    return ListedJob(job, True, job.name, context.controller.wait_reason(job), context.forecaster.forecast_of(job))


def _filter(user: User, query: JobQuery) -> stored.JobFilter:
    return stored.JobFilter(
        user=query.user,
        project=query.project,
        node=query.node,
        array_id=query.array_id,
        search=_search(user, query.text) if query.text else None,
        newest_replicas=not query.text,
    )


def _search(user: User, text: str) -> stored.JobSearch:
    """Names of other users' jobs are hidden, so the search does not match them either."""
    if user.is_admin:
        return stored.JobSearch(text)
    managed = tuple(m.project for m in user.memberships if m.role is ProjectRole.MANAGER)
    return stored.JobSearch(text, user.name, managed)


def _count(context: Context, caller: Caller, job_filter: stored.JobFilter) -> JobStateCounts:
    return JobStateCounts(_read(context, caller, (job_filter,), stored.count_by_state))


def _read(context: Context, caller: Caller, arguments: tuple[Any, ...], load: Callable[..., T]) -> T:
    """Pages that refresh automatically share a cache: permissions are applied to what it returns."""

    def read() -> T:
        with context.store.read() as conn:
            return load(conn, *arguments)

    return context.read_cache.get_or_load((load, arguments), read) if caller.via == "live" else read()
