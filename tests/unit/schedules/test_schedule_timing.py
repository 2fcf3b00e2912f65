"""Due times of schedules, compared with independent implementations."""

import contextlib
import functools
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from dateutil.relativedelta import relativedelta
from dateutil.rrule import DAILY, MONTHLY, rrule
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from heliostat.schedules.cron import NICKNAMES, parse_cron
from heliostat.schedules.due_times import choose_zone, list_next_times, parse_timing
from heliostat.schedules.iso8601 import (
    LATEST_TIME,
    CalendarPeriod,
    RepeatingInterval,
    format_period,
    parse_interval,
    parse_period,
)
from support.hypothesis_examples import example_count

NOW = datetime(2026, 11, 16, 8, 30, 15, 123, tzinfo=UTC)
ZONES = (
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "America/Sao_Paulo",  # put forward at midnight, once
    "Australia/Lord_Howe",  # by half an hour
    "Asia/Kathmandu",
    "Africa/Casablanca",  # back for Ramadan
    "Pacific/Apia",  # left out a whole day
    "America/St_Johns",
)
moments = st.datetimes(datetime(1995, 1, 1), datetime(2035, 1, 1)).map(
    lambda at: at.replace(microsecond=0, tzinfo=UTC)
)
periods = st.builds(
    CalendarPeriod,
    months=st.sampled_from([0, 0, 0, 1, 2, 3, 12, 13]),
    days=st.sampled_from([0, 0, 1, 2, 7, 30]),
    seconds=st.sampled_from([0, 0, 1, 60, 3600, 86400, 5431]),
).filter(lambda one: one.typical_seconds > 0)


def local(text: str, zone: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone))


def by_relativedelta(interval: RepeatingInterval, index: int) -> datetime:
    """Each time computed from the first: months and days in local time, then exact seconds."""
    zone, period = ZoneInfo(interval.zone), interval.period
    exact = timedelta(seconds=index * period.seconds)
    if index == 0 or not (period.months or period.days):
        return interval.starts_at + exact
    step = relativedelta(months=index * period.months, days=index * period.days)
    shown = interval.starts_at.astimezone(zone).replace(tzinfo=None) + step
    return shown.replace(tzinfo=zone, fold=0).astimezone(UTC) + exact


@given(moments, periods, st.sampled_from(ZONES), st.integers(0, 120))
@settings(max_examples=example_count(400), deadline=None)
def test_the_nth_time_matches_relativedelta(
    start: datetime, period: CalendarPeriod, zone: str, index: int
) -> None:
    interval = RepeatingInterval(None, start, period, zone)
    expected = by_relativedelta(interval, index)
    assert interval.next_after(expected - timedelta(microseconds=1)) == expected


@given(moments, periods, st.sampled_from(ZONES), moments, st.integers(1, 60) | st.none())
@settings(max_examples=example_count(300), deadline=None)
def test_all_times_of_an_interval_are_found_once_and_in_order(
    start: datetime, period: CalendarPeriod, zone: str, begin: datetime, times: int | None
) -> None:
    interval = RepeatingInterval(times, start, period, zone)
    end = begin + timedelta(seconds=period.typical_seconds * 20)
    found = list(interval.times_between(begin, end))
    estimate = max(0, int((begin - start).total_seconds() / period.typical_seconds) - 40)
    indexes = range(estimate, min(estimate + 120, times or 10**12))
    expected = sorted({at for at in (by_relativedelta(interval, n) for n in indexes) if begin < at <= end})
    assert found == expected
    assert found == list(islice(_walk(interval, begin, end), 1000))
    assert all(earlier < later for earlier, later in pairwise(found))


def _walk(interval: RepeatingInterval, begin: datetime, end: datetime):  # type: ignore[no-untyped-def]
    at = interval.next_after(begin)
    while at is not None and at <= end:
        yield at
        at = interval.next_after(at)


@given(st.sampled_from(ZONES), st.integers(1990, 2030), st.integers(1, 28), st.integers(0, 23))
@settings(deadline=None)
def test_months_and_days_match_rrule(zone: str, year: int, day: int, hour: int) -> None:
    first = datetime(year, 1, day, hour)
    for rule, period in ((DAILY, CalendarPeriod(days=1)), (MONTHLY, CalendarPeriod(months=1))):
        start = first.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)
        shown = list(rrule(rule, dtstart=first, count=60))[1:]
        expected = sorted({at.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC) for at in shown})
        interval = RepeatingInterval(60, start, period, zone)
        assert list(interval.times_between(start, start + timedelta(days=9000))) == [
            at for at in expected if at > start
        ]


# cronsim walks by whole hours: where clocks are put forward by half of one, or at 00:01, it leaves times out.
WHOLE_HOURS = tuple(zone for zone in ZONES if zone not in ("Australia/Lord_Howe", "America/St_Johns"))
minutes = st.sampled_from(["*", "*/5", "*/7", "0", "30", "59", "0,30", "10-20/3", "5/20", "1-3,50"])
hours = st.sampled_from(["*", "*/3", "0", "1", "2", "3", "23", "1-4", "0,12", "8-17"])
days = st.sampled_from(["*", "*/2", "1", "29", "31", "13", "1-7", "28-31"])
months = st.sampled_from(["*", "2", "3", "10", "MAR", "jan-jun", "*/3", "2,9"])
weekdays = st.sampled_from(["*", "0", "7", "MON-FRI", "sun", "5", "*/2", "1,3", "6-7"])


@given(minutes, hours, days, months, weekdays, st.sampled_from(WHOLE_HOURS), moments)
@settings(max_examples=example_count(150), deadline=None)
def test_cron_times_match_cronsim(
    minute: str, hour: str, day: str, month: str, weekday: str, zone: str, start: datetime
) -> None:
    line = f"{minute} {hour} {day} {month} {weekday}"
    there = start.astimezone(ZoneInfo(zone))
    try:
        other = CronSim(line, there)
    except CronSimError:
        with pytest.raises(ValueError, match="never fires"):
            parse_cron(line, zone)
        return
    cron = parse_cron(line, zone)
    expected = sorted({at.astimezone(UTC) for at in islice(other, 40)})
    expected = [at for at in expected if start < at < LATEST_TIME][:25]
    assume(expected)
    assert list(cron.times_between(start, expected[-1])) == expected


@functools.cache
def changes_of(zone: str) -> list[datetime]:
    """The days from 2005 to 2012 with a clock change in this zone."""
    days = [datetime(2005, 1, 1, 12) + timedelta(days=n) for n in range(2900)]
    offsets = [day.replace(tzinfo=ZoneInfo(zone)).utcoffset() for day in days]
    return [day for day, (before, after) in zip(days, pairwise(offsets), strict=False) if before != after]


@given(st.data(), st.sampled_from(ZONES[1:]), st.sampled_from(["*", "*/7", "*/30"]), hours)
@settings(max_examples=example_count(60), deadline=None)
def test_a_schedule_with_a_star_fires_whenever_the_local_time_matches(
    data: st.DataObject, zone: str, minute: str, hour: str
) -> None:
    begin = data.draw(st.sampled_from(changes_of(zone) or [datetime(2010, 1, 1)])).replace(tzinfo=UTC)
    cron = parse_cron(f"{minute} {hour} * * *", zone)
    every_minute = [begin + timedelta(minutes=n) for n in range(1, 2880)]
    shown = [at.astimezone(ZoneInfo(zone)) for at in every_minute]
    wanted = [at.astimezone(UTC) for at in shown if at.hour in cron.hours and at.minute in cron.minutes]
    assert list(cron.times_between(begin, every_minute[-1])) == wanted


# Where a whole day was left out, its firing comes right before that of the next day.
@given(
    st.data(),
    st.sampled_from([zone for zone in ZONES[1:] if zone != "Pacific/Apia"]),
    st.integers(0, 23),
    st.integers(0, 59),
)
@settings(max_examples=example_count(60), deadline=None)
def test_a_schedule_with_a_fixed_time_fires_once_per_existing_day(
    data: st.DataObject, zone: str, hour: int, minute: int
) -> None:
    begin = data.draw(st.sampled_from(changes_of(zone) or [datetime(2010, 1, 1)])).replace(tzinfo=UTC)
    begin -= timedelta(days=3)
    found = list(parse_cron(f"{minute} {hour} * * *", zone).times_between(begin, begin + timedelta(days=7)))
    there = [at.astimezone(ZoneInfo(zone)) for at in found]
    exact = [at for at in there if (at.hour, at.minute) == (hour, minute) and at.fold == 0]
    assert len(there) - len(exact) <= 1, "only what is left out may come at another time"
    gaps = {round((later - earlier).total_seconds() / 86400) for earlier, later in pairwise(found)}
    assert gaps <= {1}


@pytest.mark.parametrize(
    ("zone", "day"),
    [("America/St_Johns", "2005-10-29"), ("America/St_Johns", "2006-04-01"), ("America/Sao_Paulo", "2010-02-20")],
)
def test_no_time_is_lost_when_clocks_change_at_midnight(zone: str, day: str) -> None:
    begin = local(f"{day}T12:00", zone).astimezone(UTC)
    found = list(parse_cron("* * * * *", zone).times_between(begin, begin + timedelta(days=1)))
    assert found == [begin + timedelta(minutes=n) for n in range(1, 1441)]


@pytest.mark.parametrize(("zone", "day"), [("Europe/Berlin", "2026-03-29"), ("Europe/Berlin", "2026-10-25")])
@pytest.mark.parametrize("line", ["*/20 * * * *", "30 2 * * *", "15,45 1-3 * * *", "0 * * * *", "*/30 2 * * *"])
def test_cron_times_match_cronsim_when_clocks_change(zone: str, day: str, line: str) -> None:
    start = local(f"{day}T00:00", zone)
    expected = sorted({at.astimezone(UTC) for at in islice(CronSim(line, start - timedelta(days=1)), 200)})
    cron = parse_cron(line, zone)
    assert list(cron.times_between(start.astimezone(UTC) - timedelta(days=1), expected[-1])) == expected


def test_a_daily_time_keeps_the_local_time_and_24_hours_do_not() -> None:
    start = "2026-03-28T12:00:00+01:00"
    wall = parse_timing(f"R/{start}/P1D", "Europe/Berlin", NOW)
    exact = parse_timing(f"R/{start}/PT24H", "Europe/Berlin", NOW)
    before = local("2026-03-28T12:30", "Europe/Berlin")
    assert list_next_times(wall, before, 1) == [local("2026-03-29T12:00", "Europe/Berlin")]
    assert list_next_times(exact, before, 1) == [local("2026-03-29T13:00", "Europe/Berlin")]


def test_skipped_and_repeated_local_times_fire_once() -> None:
    spring = parse_timing("R/2026-03-28T02:30:00/P1D", "Europe/Berlin", NOW)
    times = list_next_times(spring, local("2026-03-28T12:00", "Europe/Berlin"), 2)
    assert times == [datetime(2026, 3, 29, 1, 30, tzinfo=UTC), datetime(2026, 3, 30, 0, 30, tzinfo=UTC)]
    autumn = parse_timing("30 2 * * *", "Europe/Berlin", NOW)
    times = list_next_times(autumn, local("2026-10-24T12:00", "Europe/Berlin"), 2)
    assert times == [datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 26, 1, 30, tzinfo=UTC)]


def test_month_ends_and_leap_days_return_to_their_own_day() -> None:
    monthly = parse_timing("R5/2024-01-31T00:00:00Z/P1M", "UTC", NOW)
    start = datetime(2024, 1, 1, tzinfo=UTC)
    assert [f"{at:%m-%d}" for at in list_next_times(monthly, start, 9)] == [
        "01-31",
        "02-29",
        "03-31",
        "04-30",
        "05-31",
    ]
    yearly = parse_timing("R/2024-02-29T00:00:00Z/P1Y", "UTC", NOW)
    assert [f"{at:%y-%m-%d}" for at in list_next_times(yearly, start, 5)] == [
        "24-02-29",
        "25-02-28",
        "26-02-28",
        "27-02-28",
        "28-02-29",
    ]


def test_a_skipped_day_does_not_count_twice() -> None:
    daily = parse_timing("R/2011-12-28T12:00:00/P1D", "Pacific/Apia", NOW)
    times = list_next_times(daily, local("2011-12-28T13:00", "Pacific/Apia"), 3)
    assert [f"{at.astimezone(ZoneInfo('Pacific/Apia')):%m-%d %H:%M}" for at in times] == [
        "12-29 12:00",
        "12-31 12:00",
        "01-01 12:00",
    ]


@pytest.mark.parametrize("text", ["R1/PT10S", "R1//PT10S", "r1//pt10s"])
def test_without_a_start_it_begins_now(text: str) -> None:
    timing = parse_timing(text, "UTC", NOW)
    assert isinstance(timing, RepeatingInterval)
    assert timing.starts_at == NOW.replace(microsecond=0)
    assert list_next_times(timing, NOW - timedelta(days=1), 5) == [NOW.replace(microsecond=0)]


def test_the_next_time_of_an_old_schedule_is_found_quickly() -> None:
    seconds = parse_timing("R/1970-01-02T00:00:00Z/PT1S", "UTC", NOW)
    assert seconds.next_after(NOW) == NOW.replace(microsecond=0) + timedelta(seconds=1)


def test_zones_are_given_or_follow_from_the_start() -> None:
    assert choose_zone("R/2026-01-01T00:00:00Z/P1D", None, "Asia/Tokyo") == "UTC"
    assert choose_zone("R/2026-01-01T00:00:00/P1D", None, "Asia/Tokyo") == "Asia/Tokyo"
    assert choose_zone("0 9 * * *", None, "Asia/Tokyo") == "Asia/Tokyo"
    assert choose_zone("R/2026-01-01T00:00:00Z/P1D", "Europe/Rome", "Asia/Tokyo") == "Europe/Rome"


@pytest.mark.parametrize("name", sorted(NICKNAMES))
def test_nicknames_are_cron_schedules(name: str) -> None:
    assert parse_cron(name, "UTC").next_after(NOW) == parse_cron(NICKNAMES[name], "UTC").next_after(NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "R",
        "R/",
        "R0//PT1H",
        "R/2026-13-01T00:00:00Z/PT1H",
        "R/2026-02-30T00:00:00Z/PT1H",
        "R/1066-02-28T00:00:00Z/PT1H",
        "R//PT0S",
        "R//P",
        "R//PT",
        "R//P1DT",
        "R//-P1D",
        "R//P1.5D",
        "R//P200Y",
        "R/now/PT1H",
        "R-1//PT1H",
        "R٣//PT1H",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1 * * * *",
        "a * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "@sometimes",
        "R/" + "9" * 500,
        "* " * 500,
    ],
)
def test_invalid_schedules_give_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        parse_timing(text, "UTC", NOW)


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "x" * 99, "a\0b"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not a time zone"):
        parse_timing("@daily", zone, NOW)


@given(periods, moments, st.none() | st.integers(1, 99))
def test_a_formatted_interval_parses_to_the_same_interval(
    period: CalendarPeriod, start: datetime, times: int | None
) -> None:
    interval = RepeatingInterval(times, start, period, "Europe/Berlin")
    assert parse_period(format_period(period)) == period
    assert parse_interval(str(interval), "Europe/Berlin", NOW) == interval


@given(st.text(max_size=30))
def test_any_text_gives_a_timing_or_a_reason(text: str) -> None:
    with contextlib.suppress(ValueError):
        list_next_times(parse_timing(text, "UTC", NOW), NOW, 3)
