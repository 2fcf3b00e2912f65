"""Generator of the demo's jobs: a month of history, or an endless stream. The same seed gives the same jobs.

Each day depends only on the seed and its date, so the live jobs continue exactly where the history stops.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from random import Random

from heliostat.demo.accounts import PROJECTS, USERS, DemoUser
from heliostat.demo.fcfs_simulation import replay_first_come_first_served
from heliostat.demo.jobs import DemoJob
from heliostat.demo.work_types import ARRAY_WORK_TYPES, HOUR_SECONDS, SINGLE_WORK_TYPES, WorkType
from heliostat.engines.simulated.cluster import demo_nodes
from heliostat.engines.simulated.engine import EXIT_KILLED
from heliostat.models import Node

SHORTEST_RUN_SECONDS = 3.0
LONGEST_RUN_SECONDS = 80 * HOUR_SECONDS
OUT_OF_MEMORY_FRACTION = 0.02
CANCELLED_FRACTION = 0.05
TOO_SHORT_LIMIT_FRACTION = 0.025
ARRAY_FRACTION = 0.055  # of the submissions of users who submit arrays

SUBMISSIONS_BY_WEEKDAY = (214, 200, 204, 196, 176, 44, 50)  # submissions on Monday, Tuesday…; an array is one
HOUR_WEIGHTS = (2, 1, 1, 1, 1, 1, 2, 5, 13, 19, 21, 19, 12, 17, 20, 20, 19, 17, 11, 7, 6, 6, 5, 3)
TIME_LIMITS_SECONDS = tuple(
    int(hours * HOUR_SECONDS)
    for hours in (0.25, 0.5, 1, 2, 4, 6, 8, 12, 18, 24, 36, 48, 72, 96, 120, 168, 240, 336)
)
EXIT_CODE_WEIGHTS = {1: 86, 2: 8, 139: 3, 134: 3}

_PROJECTS = {project.name: project for project in PROJECTS}


def generate_history(
    seed: int, until: datetime, days: int = 30, nodes: Sequence[Node] | None = None
) -> list[DemoJob]:
    """The jobs of the days before `until`, in order of submission, with their outcome.

    Unfinished jobs are RUNNING (with a node, without an end) or PENDING.
    """
    start = until - timedelta(days=days)
    submitted = [job for job in _jobs_from(seed, start, until.astimezone(UTC).date()) if job.submitted_at < until]
    return replay_first_come_first_served(submitted, demo_nodes() if nodes is None else nodes, until)


def generate_live_jobs(seed: int, start: datetime) -> Iterator[DemoJob]:
    """The jobs submitted from then on, in order; never ends."""
    return _jobs_from(seed, start, date.max)


def _jobs_from(seed: int, start: datetime, last: date) -> Iterator[DemoJob]:
    day = start.astimezone(UTC).date()
    while day <= last:
        yield from (job for job in generate_jobs_of_day(seed, day) if job.submitted_at >= start)
        day += timedelta(days=1)


def generate_jobs_of_day(seed: int, day: date) -> list[DemoJob]:
    """All jobs submitted on that day (UTC), in order."""
    rng = Random(f"{seed}/{day.isoformat()}")
    weights = [_activity(seed, person, day) for person in USERS]
    submissions = max(
        0, round(rng.gauss(SUBMISSIONS_BY_WEEKDAY[day.weekday()], SUBMISSIONS_BY_WEEKDAY[day.weekday()] ** 0.5))
    )
    jobs: list[DemoJob] = []
    for number in range(submissions):
        (person,) = rng.choices(USERS, weights)
        jobs += _submit(rng, person, _time_of_day(rng, day), f"{day.isoformat()}/{number}")
    return sorted(jobs, key=lambda job: job.submitted_at)


def _activity(seed: int, person: DemoUser, day: date) -> float:
    """Users have busy and quiet weeks."""
    year, week, _ = day.isocalendar()
    return person.activity * _week_factor(f"{seed}/{person.name}/{year}-{week}")


@lru_cache(maxsize=1024)
def _week_factor(key: str) -> float:
    return Random(key).lognormvariate(0, 0.6)


def _time_of_day(rng: Random, day: date) -> datetime:
    (hour,) = rng.choices(range(24), HOUR_WEIGHTS)
    return datetime.combine(day, time(hour), UTC) + timedelta(seconds=rng.uniform(0, HOUR_SECONDS))


def _submit(rng: Random, person: DemoUser, at: datetime, array: str) -> list[DemoJob]:
    is_array = person.submits_arrays and rng.random() < ARRAY_FRACTION
    work = _choose_work(rng, at, ARRAY_WORK_TYPES if is_array else SINGLE_WORK_TYPES)
    job = _plan(rng, person, work, at)
    if work.array_size_range is None:
        return [_with_outcome(rng, work, job)]
    elements = (_element(rng, job, array, index) for index in range(rng.randint(*work.array_size_range)))
    return [_with_outcome(rng, work, element) for element in elements]


def _choose_work(rng: Random, at: datetime, works: Sequence[WorkType]) -> WorkType:
    is_friday_afternoon = at.weekday() == 4 and at.hour >= 14
    is_overnight = at.hour >= 17 or is_friday_afternoon or at.weekday() >= 5
    weights = [work.overnight_weight if is_overnight else work.day_weight for work in works]
    return rng.choices(works, weights)[0]


def _plan(rng: Random, person: DemoUser, work: WorkType, at: datetime) -> DemoJob:
    """The job if nothing goes wrong."""
    project = person.projects[0] if rng.random() < 0.7 else rng.choice(person.projects)
    name, command = work.make_name_and_command(rng, _PROJECTS[project])
    seconds = _bounded(work.median_seconds * rng.lognormvariate(0, work.duration_sigma))
    return DemoJob(
        submitted_at=at,
        user=person.name,
        project=project,
        name=name,
        command=command,
        resources=work.choose_resources(rng),
        time_limit_seconds=_limit_above(seconds * rng.uniform(2, 3.6)),
        run_seconds=seconds,
    )


def _element(rng: Random, job: DemoJob, array: str, index: int) -> DemoJob:
    seconds = min(_bounded(job.run_seconds * rng.lognormvariate(0, 0.2)), job.time_limit_seconds * 0.9)
    return replace(job, run_seconds=seconds, array_key=array, array_index=index)


def _with_outcome(rng: Random, work: WorkType, job: DemoJob) -> DemoJob:
    problems = {
        _fail: work.failure_rate,
        _run_out_of_memory: OUT_OF_MEMORY_FRACTION,
        _cancel: CANCELLED_FRACTION,
        _set_too_short_limit: TOO_SHORT_LIMIT_FRACTION,
    }
    success_rate = 1 - sum(problems.values())
    (outcome,) = rng.choices([*problems, _succeed], [*problems.values(), success_rate])
    return outcome(rng, job)


def _succeed(rng: Random, job: DemoJob) -> DemoJob:
    return job


def _fail(rng: Random, job: DemoJob) -> DemoJob:
    """Mostly early: a wrong path, a wrong shape."""
    (exit_code,) = rng.choices(list(EXIT_CODE_WEIGHTS), list(EXIT_CODE_WEIGHTS.values()))
    seconds = _bounded(job.run_seconds * rng.betavariate(0.6, 2.5))
    return replace(job, run_seconds=seconds, exit_code=exit_code)


def _run_out_of_memory(rng: Random, job: DemoJob) -> DemoJob:
    seconds = _bounded(job.run_seconds * rng.betavariate(0.5, 4))
    return replace(job, run_seconds=seconds, exit_code=EXIT_KILLED, out_of_memory=True)


def _cancel(rng: Random, job: DemoJob) -> DemoJob:
    """Before it could finish, even if it started at once."""
    return replace(job, cancel_after_seconds=job.run_seconds * rng.uniform(0.05, 0.9))


def _set_too_short_limit(rng: Random, job: DemoJob) -> DemoJob:
    limits = [limit for limit in TIME_LIMITS_SECONDS if limit < job.run_seconds]
    if job.array_key is not None or not limits:
        return job
    return replace(job, time_limit_seconds=limits[-1])


def _limit_above(seconds: float) -> int:
    return next((limit for limit in TIME_LIMITS_SECONDS if limit >= seconds), TIME_LIMITS_SECONDS[-1])


def _bounded(seconds: float) -> float:
    return round(min(max(seconds, SHORTEST_RUN_SECONDS), LONGEST_RUN_SECONDS), 3)
