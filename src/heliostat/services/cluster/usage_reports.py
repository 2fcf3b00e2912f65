"""Usage reports of a month or of some days: of all users for admins, of their projects for managers, and of
themselves for other users."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NoReturn

from sqlalchemy import Connection

from heliostat.errors import Invalid
from heliostat.models import Caller, JobId, ProjectRole
from heliostat.models.csv_cells import quote_formula
from heliostat.models.samples import JOB_POWER_PREFIX, MEASURED_POWER_COLUMN
from heliostat.services.context import Context
from heliostat.services.energy import EnergyEstimate, own_part
from heliostat.store.sample_chunks import integrate_chunks, is_always_set
from heliostat.store.usage_report import (
    ReportPeriod,
    ReportScope,
    UsageTotals,
    WaitTimes,
    compute_wait_times,
    find_first_attempt_start,
    list_report_names,
    sum_usage,
    total_gpu_hours,
)

_MAX_MONTHS = 120
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class UsageReportLine:
    """One department, project, user or GPU type in one period."""

    period: str  # 2026-11, or 2026-11-01..2026-11-15
    name: str
    jobs: int  # that ran in this period
    gpu_hours: float
    cpu_hours: float
    fraction_of_total: float  # of the GPU-hours of all users
    wasted_gpu_hours: (
        float  # of attempts that failed, timed out, were lost or preempted, since their last checkpoint
    )
    wasted_cpu_hours: float
    mean_wait_seconds: float | None  # of jobs that first started in this period
    median_wait_seconds: float | None
    energy_kwh: float | None = None  # of GPUs; None: not known
    co2_kg: float | None = None  # None: the energy, or the CO2 of a kWh, is not known
    energy_source: str | None = None  # "measured", or "estimate" if only a part of it was measured


def monthly_usage_report(context: Context, caller: Caller, month: str | None, by: str) -> list[UsageReportLine]:
    """A month is `2026-11`, in UTC; None: the current one."""
    return usage_report(context, caller, PeriodRequest(month), by)


@dataclass(frozen=True, slots=True)
class PeriodRequest:
    """A month, or the days from the first to the last one, in UTC; nothing: the current month."""

    month: str | None = None
    first_day: date | None = None  # None: the first day of all usage
    last_day: date | None = None  # None: today


def usage_report(context: Context, caller: Caller, requested: PeriodRequest, by: str) -> list[UsageReportLine]:
    """Sorted by GPU-hours, the most first."""
    name, span = resolve_period(requested, context.now())
    scope = report_scope(caller)
    with context.store.read() as conn:
        used = sum_usage(conn, span, by, scope)
        waits = compute_wait_times(conn, span, by, scope)
        total = total_gpu_hours(conn, span) if scope else sum(totals.gpu_hours for totals in used)
        energy = _energy_by_name(context, conn, span, by, scope)
    lines = [_line(name, totals, waits.get(totals.name), total, energy.get(totals.name)) for totals in used]
    return sorted(lines, key=lambda line: (-line.gpu_hours, -line.cpu_hours, line.name))


def list_report_months(context: Context) -> list[str]:
    """The months since the first attempt, the current one first."""
    now = context.now()
    with context.store.read() as conn:
        first = find_first_attempt_start(conn) or now
    last, count = now.year * 12 + now.month - 1, (now.year - first.year) * 12 + now.month - first.month
    numbers = range(last, last - min(max(count, 0), _MAX_MONTHS) - 1, -1)
    return [f"{number // 12:04}-{number % 12 + 1:02}" for number in numbers]


def usage_report_csv(lines: Sequence[UsageReportLine], by: str) -> str:
    return report_csv(UsageReportLine, lines, by)


def report_csv(kind: type[Any], lines: Sequence[Any], by: str) -> str:
    """Lines of this dataclass, with a header. Text that a spreadsheet would read as a formula is quoted."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow([by if field.name == "name" else field.name for field in fields(kind)])
    for line in lines:
        writer.writerow([quote_formula(value) for value in asdict(line).values()])
    return text.getvalue()


def _energy_by_name(
    context: Context, conn: Connection, period: ReportPeriod, by: str, scope: ReportScope | None
) -> dict[str, EnergyEstimate]:
    start, end = period.start.timestamp(), min(period.end, period.now).timestamp()
    by_job: dict[JobId, float] = defaultdict(float)
    estimated: set[JobId] = set()
    for subject, chunk in context.samples.scan(JOB_POWER_PREFIX, start, end):
        job_id = int(subject.removeprefix(JOB_POWER_PREFIX))
        by_job[job_id] += integrate_chunks([chunk], start, end)
        if not is_always_set([chunk], MEASURED_POWER_COLUMN):
            estimated.add(job_id)
    joules: dict[str, float] = defaultdict(float)
    estimates: set[str] = set()
    for job_id, (name, gpus) in list_report_names(conn, by_job, by, scope).items():
        joules[name] += by_job[job_id] * own_part(gpus)
        if job_id in estimated or own_part(gpus) < 1:
            estimates.add(name)
    settings = context.settings.monitoring
    return {
        name: EnergyEstimate.of_joules(total, settings, is_measured=name not in estimates)
        for name, total in joules.items()
    }


def _line(
    period: str, totals: UsageTotals, wait: WaitTimes | None, total: float, energy: EnergyEstimate | None
) -> UsageReportLine:
    return UsageReportLine(
        period=period,
        name=totals.name,
        jobs=totals.jobs,
        gpu_hours=round(totals.gpu_hours, 2),
        cpu_hours=round(totals.cpu_hours, 2),
        fraction_of_total=round(totals.gpu_hours / total, 4) if total else 0.0,
        wasted_gpu_hours=round(totals.wasted_gpu_hours, 2),
        wasted_cpu_hours=round(totals.wasted_cpu_hours, 2),
        mean_wait_seconds=None if wait is None else round(wait.mean, 1),
        median_wait_seconds=None if wait is None else round(wait.median, 1),
        energy_kwh=None if energy is None else energy.kwh,
        co2_kg=None if energy is None else energy.co2_kg,
        energy_source=None if energy is None else energy.source,
    )


def _month_span(month: str, now: datetime) -> ReportPeriod:
    match = re.fullmatch(r"(\d{4})-(0[1-9]|1[0-2])", month, re.ASCII)
    if match is None or not 1970 <= int(match[1]) <= 9998:
        raise Invalid(f"{month[:20]!a} is not a month.", "Write 2026-11.", fields={"month": "write 2026-11"})
    year, number = int(match[1]), int(match[2])
    begins = datetime(year, number, 1, tzinfo=UTC)
    if begins > now:
        fields = {"month": "has not begun"}
        raise Invalid(f"{month} has not begun.", f"The current month is {now:%Y-%m}.", fields=fields)
    return ReportPeriod(begins, datetime(year + number // 12, number % 12 + 1, 1, tzinfo=UTC), now)


def resolve_period(requested: PeriodRequest, now: datetime) -> tuple[str, ReportPeriod]:
    """Its name and its time span."""
    if requested.first_day is None and requested.last_day is None:
        month = requested.month or f"{now:%Y-%m}"
        return month, _month_span(month, now)
    if requested.month is not None:
        fields = {"month": "not with from and to"}
        raise Invalid("month: not with from and to.", "Give a month, or from and to.", fields=fields)
    first, last = requested.first_day or _EPOCH, requested.last_day or now.date()
    if last < first or first > now.date():
        _refuse_days(first, last, now.date())
    begins = datetime.combine(first, time(), UTC)
    ends = datetime.combine(last, time(), UTC) + timedelta(days=1)
    return f"{first}..{last}", ReportPeriod(begins, ends, now)


def _refuse_days(first: date, last: date, today: date) -> NoReturn:
    if first > today:
        hint = f"Today is {today} in UTC."
        raise Invalid(f"{first} is in the future.", hint, fields={"from": "is in the future"})
    message = f"The first day, {first}, is after the last day, {last}."
    raise Invalid(message, "Exchange them.", fields={"from": "is after to"})


def report_scope(caller: Caller) -> ReportScope | None:
    """The jobs that the caller may see in a report; None: all."""
    if caller.user.is_admin:
        return None
    managed = [each.project for each in caller.user.memberships if each.role is ProjectRole.MANAGER]
    return ReportScope(caller.user.name, managed)
