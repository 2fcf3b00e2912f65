"""Hints at submission: what the last jobs with the same name and request used of it.

A submission must stay fast: the recent jobs of a user are read at most every half minute, and the usage of an
ended job once.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from heliostat.models import Caller, DeviceStatistics, Job, JobRequest, SeriesStatistics, UsageSummary
from heliostat.services.cluster.job_usage import job_facts, load_job_usage
from heliostat.services.context import Context
from heliostat.services.efficiency import MIN_RUN_SECONDS, applicable_rules, format_options, suggest_change
from heliostat.services.efficiency_facts import JobFacts
from heliostat.services.jobs.submission import draft_jobs
from heliostat.store import jobs as stored

_MAX_JOBS, _MIN_JOBS = 5, 2  # with the same name


@dataclass(frozen=True, slots=True)
class UsageHint:
    rule: str
    text: str  # whole sentences


def find_usage_hints(context: Context, caller: Caller, jobs: Sequence[Job]) -> tuple[UsageHint, ...]:
    """For a single batch job, from the caller's own earlier jobs."""
    if len(jobs) != 1 or jobs[0].kind != "batch" or jobs[0].array_index is not None:
        return ()
    (job,), user = jobs, caller.user.name
    key = user, job.name, job.resources, job.placement, job.time_limit_seconds
    hints: tuple[UsageHint, ...] = context.recent_jobs.get_or_load(key, lambda: _load_hints(context, user, job))
    return hints


def find_usage_hints_of_request(context: Context, caller: Caller, request: JobRequest) -> tuple[UsageHint, ...]:
    """For a job that is not submitted. Raises as a submission does."""
    return () if request.array else find_usage_hints(context, caller, draft_jobs(context, caller, [request]))


def _load_hints(context: Context, user: str, job: Job) -> tuple[UsageHint, ...]:
    by_name = context.recent_jobs.get_or_load(user, lambda: _load_recent_jobs(context, user))
    similar = [past for past in by_name.get(job.name, ()) if _is_similar(past, job)][:_MAX_JOBS]
    known = [facts for past in similar if (facts := _load_facts(context, past)).used.sampled_seconds > 0]
    return tuple(_hints(job, _largest(known))) if len(known) >= _MIN_JOBS else ()


def _load_recent_jobs(context: Context, user: str) -> Mapping[str, Sequence[Job]]:
    """By name, newest first."""
    by_name = defaultdict(list)
    with context.store.read() as conn:
        for job in stored.list_recently_completed_jobs(conn, user, MIN_RUN_SECONDS):
            by_name[job.name].append(job)
    return dict(by_name)


def _is_similar(past: Job, job: Job) -> bool:
    """With the same request: after a larger or a smaller one, the user has already made a change."""
    is_same_size = past.resources == job.resources and past.placement == job.placement
    return is_same_size and past.time_limit_seconds == job.time_limit_seconds


def _load_facts(context: Context, job: Job) -> JobFacts:
    def load() -> JobFacts:
        return job_facts(context, load_job_usage(context, job))

    return context.past_usage.get_or_load(job.id, load)


def _hints(job: Job, facts: JobFacts) -> Iterator[UsageHint]:
    for rule in applicable_rules(facts):
        change, _ = suggest_change(facts, [rule])
        if rule.is_hint and change:
            used = rule.sentence.format_map(facts.texts)
            jobs = f"Your last {facts.jobs} jobs named {job.name}"
            yield UsageHint(rule.id, f"{jobs} {used}. `{format_options(change)}` would be enough.")


def _largest(past: Sequence[JobFacts]) -> JobFacts:
    """Of each amount the maximum; unknown if it is unknown for one of them."""
    used = UsageSummary(
        min(facts.used.sampled_seconds for facts in past),
        _largest_of([facts.used.cpus for facts in past]),
        _largest_of([facts.used.memory_mib for facts in past]),
        _largest_devices(past),
    )
    run_seconds, attempts = max(facts.run_seconds for facts in past), max(facts.attempts for facts in past)
    return replace(past[0], used=used, run_seconds=run_seconds, attempts=attempts, jobs=len(past))


def _largest_devices(past: Sequence[JobFacts]) -> tuple[DeviceStatistics, ...]:
    """The busiest GPU of each job, then the second: which of its GPUs a program uses does not matter."""
    ranked = [sorted(facts.used.devices, key=lambda device: -(device.utilisation.mean or 0.0)) for facts in past]
    return tuple(map(_largest_device, zip_longest(*ranked, fillvalue=DeviceStatistics())))


def _largest_device(devices: Sequence[DeviceStatistics]) -> DeviceStatistics:
    return DeviceStatistics(
        _largest_of([device.utilisation for device in devices]),
        _largest_of([device.memory_mib for device in devices]),
    )


def _largest_of(statistics: Sequence[SeriesStatistics]) -> SeriesStatistics:
    return SeriesStatistics(
        _largest_value([each.mean for each in statistics]), _largest_value([each.peak for each in statistics])
    )


def _largest_value(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None
