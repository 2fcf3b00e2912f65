from dataclasses import replace
from datetime import UTC, datetime, timedelta

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
    assert COURSE.is_over_at == START + 2 * WEEK + 8 * HOUR
    assert list(COURSE.occurrences(COURSE.is_over_at)) == []


def test_it_holds_from_its_start_until_before_its_end() -> None:
    assert COURSE.holds_at(START + WEEK)
    assert not COURSE.holds_at(START + 8 * HOUR)
    assert not COURSE.holds_at(START - HOUR)


def test_one_right_after_the_other_does_not_overlap() -> None:
    after = replace(COURSE, starts_at=COURSE.ends_at, ends_at=COURSE.ends_at + HOUR)
    assert not COURSE.overlaps(after)
    assert not after.overlaps(COURSE)


@given(reservations, reservations)
def test_two_overlap_exactly_if_both_hold_in_some_hour(one: Reservation, other: Reservation) -> None:
    moments = (START + hour * HOUR for hour in range(-800, 800 + 168 * 4))
    together = any(one.holds_at(moment) and other.holds_at(moment) for moment in moments)
    assert one.overlaps(other) == other.overlaps(one) == together
