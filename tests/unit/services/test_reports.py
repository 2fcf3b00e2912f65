"""The report as a table for spreadsheets."""

import csv
import io
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import insert

from heliostat.config.sections import MonitoringSettings
from heliostat.errors import Invalid
from heliostat.models import Caller, Resources
from heliostat.services.cluster.usage_reports import (
    PeriodRequest,
    UsageReportLine,
    _month_span,
    list_report_months,
    monthly_usage_report,
    resolve_period,
    usage_report_csv,
)
from heliostat.store import schema
from heliostat.store.timestamps import to_timestamp
from unit.services.site import Site

NOW = datetime(2026, 11, 15, tzinfo=UTC)


def a_line(name: str) -> UsageReportLine:
    return UsageReportLine("2026-11", name, 3, 1.5, 2.0, 0.25, 0.5, 0.1, None, 7.0)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@cmd", "\tx"])
def test_spreadsheet_formulas_are_quoted(name: str) -> None:
    (_, line) = csv.reader(io.StringIO(usage_report_csv([a_line(name)], "user")))
    assert line[1] == f"'{name}"


def test_commas_and_quotes_are_escaped_and_unknown_values_are_empty() -> None:
    head, line = csv.reader(io.StringIO(usage_report_csv([a_line('a,"b')], "project")))
    assert dict(zip(head, line, strict=True)) == {
        "period": "2026-11",
        "project": 'a,"b',
        "jobs": "3",
        "gpu_hours": "1.5",
        "cpu_hours": "2.0",
        "fraction_of_total": "0.25",
        "wasted_gpu_hours": "0.5",
        "wasted_cpu_hours": "0.1",
        "mean_wait_seconds": "",
        "median_wait_seconds": "7.0",
        "energy_kwh": "",
        "co2_kg": "",
        "energy_source": "",
    }


def test_december_ends_with_the_year() -> None:
    assert _month_span("2025-12", NOW).end == datetime(2026, 1, 1, tzinfo=UTC)
    assert _month_span("2026-11", NOW).end == datetime(2026, 12, 1, tzinfo=UTC)


def test_a_period_of_days_includes_the_first_and_the_last() -> None:
    name, span = resolve_period(PeriodRequest(None, date(2026, 11, 1), date(2026, 11, 3)), NOW)
    assert (name, span.end - span.start) == ("2026-11-01..2026-11-03", timedelta(days=3))
    assert resolve_period(PeriodRequest(None, date(2026, 11, 14)), NOW)[0] == "2026-11-14..2026-11-15"
    assert resolve_period(PeriodRequest(), NOW)[0] == "2026-11"


@pytest.mark.parametrize(
    "requested",
    [
        PeriodRequest("2026-11", date(2026, 11, 1)),
        PeriodRequest(None, date(2026, 11, 3), date(2026, 11, 2)),
        PeriodRequest(None, date(2026, 11, 16)),
    ],
)
def test_a_period_that_is_none_is_refused(requested: PeriodRequest) -> None:
    with pytest.raises(Invalid):
        resolve_period(requested, NOW)


@pytest.mark.parametrize(
    "month", ["", "2026", "2026-1", "2026-00", "2026-13", "26-11", "1969-12", "9999-01", "2026-11\n"]
)
def test_an_invalid_month_is_refused(month: str) -> None:
    with pytest.raises(Invalid):
        _month_span(month, NOW)


def test_a_month_that_has_not_begun_is_refused() -> None:
    with pytest.raises(Invalid, match="2026-12 has not begun") as refused:
        _month_span("2026-12", NOW)
    assert refused.value.hint == "The current month is 2026-11."


@pytest.mark.parametrize(
    ("first", "last", "message"),
    [
        (date(2027, 1, 1), None, "2027-01-01 is in the future."),
        (date(2026, 11, 2), date(2026, 11, 1), "The first day, 2026-11-02, is after the last day, 2026-11-01."),
    ],
)
def test_a_period_without_days_is_refused_in_a_sentence(first: date, last: date | None, message: str) -> None:
    with pytest.raises(Invalid) as refused:
        resolve_period(PeriodRequest(None, first, last), NOW)
    assert refused.value.message == message


def test_months_go_back_to_the_first_job(site: Site) -> None:
    site.clock.at = datetime(2026, 2, 15, tzinfo=UTC)
    assert list_report_months(site.context) == ["2026-02"]
    first = to_timestamp(datetime(2025, 11, 30, 23, tzinfo=UTC))
    site.add_job(1)
    values = {"job_id": 1, "number": 1, "node": "n1", "devices": "[]", "state": "running", "created_at": first}
    values |= {"started_at": first}
    site.context.store.write(lambda tx: tx.conn.execute(insert(schema.attempts).values(**values)))
    assert list_report_months(site.context) == ["2026-02", "2026-01", "2025-12", "2025-11"]


def test_energy_is_the_power_of_the_gpus_over_time_within_the_month(site: Site) -> None:
    site.clock.at = datetime(2026, 2, 15, tzinfo=UTC)
    ada = site.person("ada")
    began = datetime(2026, 1, 31, 23, 30, tzinfo=UTC)
    for number, user, gpus in ((1, "ada", 1.0), (2, "root", 1.0), (3, "root", 0.5), (4, "root", 0.0)):
        site.add_job(number, user=user, resources=Resources(gpus=gpus))
        values = {"job_id": number, "number": 1, "node": "n1", "devices": "[]", "state": "completed"}
        times = {"created_at": began.timestamp(), "started_at": began.timestamp()}
        values |= {**times, "ended_at": began.timestamp() + 3600}
        site.context.store.write(lambda tx, row=values: tx.conn.execute(insert(schema.attempts).values(**row)))
        for second in range(0, 3600, 10) if gpus else ():
            site.context.samples.add(began.timestamp() + second, {f"job-power/{number}": [400.0]})

    site.context.samples.flush(site.clock.at.timestamp())

    def energy(caller: Caller, month: str) -> dict[str, tuple[float | None, float | None]]:
        lines = monthly_usage_report(site.context, caller, month, "user")
        return {line.name: (line.energy_kwh, line.co2_kg) for line in lines}

    assert energy(site.root, "2026-02") == {"ada": (0.2, None), "root": (0.3, None)}
    assert energy(ada, "2026-02") == {"ada": (0.2, None)}
    site.context.settings = replace(  # type: ignore[misc]
        site.context.settings, monitoring=MonitoringSettings(co2_grams_per_kwh=400.0)
    )
    assert energy(site.root, "2026-01") == {"ada": (0.2, 0.08), "root": (0.3, 0.12)}
