"""Past usage, run durations and submissions for the scheduler."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta

from heliostat.models import Job
from heliostat.models.gpu_types import card_fraction
from heliostat.scheduling.arrivals import MAX_ARRIVAL_DAYS, MAX_ARRIVALS
from heliostat.scheduling.duration_estimator import RunDuration
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import PastUsage
from heliostat.store.database import Store
from heliostat.store.forecasts import FinishedRun, list_finished_runs, list_submissions
from heliostat.store.usage import DailyUsage, list_daily_usage

_HALF_LIVES = 8  # older usage counts almost nothing
_QUOTA_PERIOD = timedelta(days=31)
_HISTORY = timedelta(days=90)
_MAX_RUNS = 20_000


def load_usage_history(store: Store, policy: SchedulingPolicy, now: datetime) -> list[PastUsage]:
    """By day: the time of day does not matter for a half-life of days."""
    counted = max(timedelta(seconds=_HALF_LIVES * policy.half_life_seconds), _QUOTA_PERIOD)
    with store.read() as conn:
        rows = list_daily_usage(conn, now - counted, now)
    return list(_usages(rows, policy, now))


def load_run_durations(store: Store, now: datetime) -> list[RunDuration]:
    """Durations of the newest finished jobs, oldest first."""
    with store.read() as conn:
        return [_duration(run) for run in list_finished_runs(conn, now - _HISTORY, _MAX_RUNS)]


def load_submissions(store: Store, now: datetime) -> list[Job]:
    """The newest submitted jobs, oldest first."""
    with store.read() as conn:
        return list_submissions(conn, now - timedelta(days=MAX_ARRIVAL_DAYS), MAX_ARRIVALS)


def _duration(run: FinishedRun) -> RunDuration:
    return RunDuration(run.user, run.project, run.name, run.seconds, run.limit_seconds, run.kind)


def _usages(rows: list[DailyUsage], policy: SchedulingPolicy, now: datetime) -> Iterator[PastUsage]:
    charges = policy.charges
    for row in rows:
        begin = datetime.combine(row.day, time(), UTC)
        end = min(begin + timedelta(days=1), now)
        seconds = max((end - begin).total_seconds(), 1.0)
        memory = row.memory_mib_seconds / 1024 * charges.memory_gib
        gpu_seconds = max(0.0, row.gpu_seconds - row.credit_gpu_seconds)
        cost = (gpu_seconds * charges.gpu_charge(row.gpu_type) + row.cpu_seconds * charges.cpu + memory) / 3600
        start = begin.timestamp()
        yield PastUsage(
            user=row.user,
            project=row.project,
            priority_class=row.priority_class,
            start=start,
            end=start + seconds,
            charge_per_second=cost / seconds,
            gpu_hours=row.gpu_seconds * card_fraction(row.gpu_type) / 3600,
        )
