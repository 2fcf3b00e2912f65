from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Reservation

START = datetime(2026, 12, 3, 9, tzinfo=UTC)
HOUR, WEEK = timedelta(hours=1), timedelta(weeks=1)
COURSE = Reservation("course", ("n1",), START, START + 8 * HOUR, weeks=3)

hours = st.integers(-800, 800)
reservations = st.builds(
    lambda begin, length, weeks: Reservation(
        "x", (), START + begin * HOUR, START + (begin + length) * HOUR, None, None, weeks
    ),
    hours,
    st.integers(1, 167),
    st.integers(1, 4),
)


def test_it_takes_place_every_week_and_is_over_after_the_last() -> None:
    assert [begin for begin, _ in COURSE.occurrences(START)] == [START, START + WEEK, START + 2 * WEEK]
    assert [begin for begin, _ in COURSE.occurrences(START + 8 * HOUR)] == [START + WEEK, START + 2 * WEEK]
    assert COURSE.final_end_at == START + 2 * WEEK + 8 * HOUR
    assert list(COURSE.occurrences(COURSE.final_end_at)) == []


def test_it_holds_from_its_start_until_before_its_end() -> None:
    assert COURSE.is_active_at(START + WEEK)
    assert not COURSE.is_active_at(START + 8 * HOUR)
    assert not COURSE.is_active_at(START - HOUR)


def test_one_right_after_the_other_does_not_overlap() -> None:
    after = replace(COURSE, starts_at=COURSE.ends_at, ends_at=COURSE.ends_at + HOUR)
    assert not COURSE.overlaps(after)
    assert not after.overlaps(COURSE)


@given(reservations, reservations)
def test_two_overlap_exactly_if_both_hold_in_some_hour(one: Reservation, other: Reservation) -> None:
    moments = (START + hour * HOUR for hour in range(-800, 800 + 168 * 4))
    together = any(one.is_active_at(moment) and other.is_active_at(moment) for moment in moments)
    assert one.overlaps(other) == other.overlaps(one) == together


@pytest.mark.parametrize(
    ("first", "changes_by"),
    [(datetime(2026, 3, 26, 8, tzinfo=UTC), -1), (datetime(2026, 10, 22, 7, tzinfo=UTC), 1)],
    ids=["spring", "autumn"],
)
def test_it_keeps_its_time_of_day_when_the_clocks_change(first: datetime, changes_by: int) -> None:
    berlin = ZoneInfo("Europe/Berlin")
    course = Reservation("course", ("n1",), first, first + 8 * HOUR, weeks=3, time_zone="Europe/Berlin")
    times = list(course.occurrences(first))
    assert [(begin.astimezone(berlin).hour, end.astimezone(berlin).hour) for begin, end in times] == [(9, 17)] * 3
    assert times[1][0] - times[0][0] == WEEK + changes_by * HOUR
    assert times[2][0] - times[1][0] == WEEK
    assert course.final_end_at == times[2][1] == first + 2 * WEEK + (8 + changes_by) * HOUR
    assert replace(course, time_zone="UTC").final_end_at == first + 2 * WEEK + 8 * HOUR


@pytest.mark.parametrize("minutes", [10, 30, 60, 90, 180])
def test_one_in_the_hour_that_clocks_leave_out_or_repeat_takes_place_all_the_same(minutes: int) -> None:
    for first in (datetime(2026, 3, 22, 1, 30, tzinfo=UTC), datetime(2026, 10, 18, 0, 30, tzinfo=UTC)):
        ends_at = first + timedelta(minutes=minutes)
        nightly = Reservation("x", ("n1",), first, ends_at, weeks=2, time_zone="Europe/Berlin")
        begin, end = list(nightly.occurrences(first))[1]
        assert begin < end <= begin + timedelta(minutes=minutes + 60)
        assert abs(begin - first - WEEK) <= HOUR


def test_in_a_zone_that_nobody_knows_any_more_it_repeats_by_utc() -> None:
    lost = replace(COURSE, time_zone="Atlantis/../Capital")
    assert list(lost.occurrences(START)) == list(COURSE.occurrences(START))
