"""What Chronos tells of how long runs took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.api.chronos.stats import duration_histogram

NAMES = ("median", "75thPercentile", "95thPercentile", "98thPercentile", "99thPercentile")


def test_of_a_hundred_runs_each_percentile_is_the_time_that_so_many_stayed_below() -> None:
    told = duration_histogram([float(number) for number in range(100)])
    assert {name: told[name] for name in NAMES} == dict(zip(NAMES, (50.0, 75.0, 95.0, 98.0, 99.0), strict=True))
    assert (told["mean"], told["count"]) == (49.5, 100)


def test_without_a_run_all_is_nothing() -> None:
    assert set(duration_histogram([]).values()) == {0.0}


@given(st.lists(st.floats(0, 1e9), min_size=1, max_size=50))
def test_percentiles_are_times_that_were_and_never_fall(times: list[float]) -> None:
    times.sort()
    told = duration_histogram(times)
    found = [told[name] for name in NAMES]
    assert found == sorted(found)
    assert set(found) <= set(times)
    assert told["mean"] == pytest.approx(sum(times) / len(times))
