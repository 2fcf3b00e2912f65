"""Ranges of forecasts, made as wide as past errors require."""

import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.scheduling.forecast import Forecast
from heliostat.scheduling.forecast_calibration import ForecastAccuracy, ForecastCalibration, measure_accuracy

NOW = datetime(2026, 3, 2, tzinfo=UTC)
AT = NOW.timestamp()
HOUR = 3600.0


def computed(earliest: float, likely: float, latest: float) -> Forecast:
    return Forecast(*(NOW + timedelta(seconds=seconds) for seconds in (earliest, likely, latest)), 0.8)


def seconds(forecast: Forecast) -> tuple[float, float, float]:
    times = (forecast.earliest_at, forecast.likely_at, forecast.latest_at)
    first, second, third = ((at - NOW).total_seconds() for at in times)
    return first, second, third


def past(waited: float, *, likely: float = HOUR, ago: float = 1e6, shown: float = 0.5) -> PastForecast:
    """A forecast of `likely` seconds, computed with certainty and shown with a range of plus and minus `shown`."""
    made = AT - ago
    middle = ForecastRange(made + likely, made + likely, made + likely)
    wide = ForecastRange(made + likely * (1 - shown), made + likely, made + likely * (1 + shown))
    return PastForecast(made, middle, wide, made + waited)


def test_without_outcomes_a_range_reaches_from_half_to_twice_the_wait_and_has_no_confidence() -> None:
    found = ForecastCalibration((), NOW).calibrate(computed(HOUR, HOUR, HOUR), NOW)
    earliest, likely, latest = seconds(found)
    assert 0.4 * HOUR < earliest < 0.6 * HOUR
    assert likely == pytest.approx(HOUR)
    assert 1.7 * HOUR < latest < 2.3 * HOUR
    assert found.confidence is None


def test_a_job_that_starts_now_is_not_forecast_later_than_a_minute() -> None:
    assert seconds(ForecastCalibration((), NOW).calibrate(computed(0, 0, 0), NOW))[2] <= 61


def test_forecasts_that_were_always_too_early_are_moved_later() -> None:
    errors = [past(3 * HOUR, ago=1e6 - 7200 * number) for number in range(100)]
    found = ForecastCalibration(errors, NOW).calibrate(computed(HOUR, HOUR, HOUR), NOW)
    assert seconds(found)[1] == pytest.approx(3 * HOUR, rel=0.05)
    assert seconds(found)[2] >= 3 * HOUR
    assert found.confidence == 0.8


def test_the_errors_of_similar_waits_count() -> None:
    short = [past(120.0, likely=60.0, ago=2e6 - 7200 * number) for number in range(100)]
    long = [past(24 * HOUR, likely=24 * HOUR, ago=1e6 - 7200 * number) for number in range(100)]
    calibration = ForecastCalibration(short + long, NOW)
    assert seconds(calibration.calibrate(computed(60, 60, 60), NOW))[1] == pytest.approx(120.0, abs=10)
    day = 24 * HOUR
    assert seconds(calibration.calibrate(computed(day, day, day), NOW))[1] == pytest.approx(day, rel=0.02)


def test_a_hundred_jobs_submitted_together_count_like_one() -> None:
    together = [past(9 * HOUR, ago=2e6) for _ in range(100)]
    apart = [past(HOUR, ago=1e6 - 7200 * number) for number in range(100)]
    found = ForecastCalibration(together + apart, NOW).calibrate(computed(HOUR, HOUR, HOUR), NOW)
    assert seconds(found)[1] == pytest.approx(HOUR, rel=0.05)


def test_a_job_that_still_waits_long_after_its_forecast_counts_at_once() -> None:
    on_time = [past(HOUR, ago=1e6 - 7200 * number) for number in range(30)]
    made = AT - 90 * HOUR
    waits = [
        PastForecast(made + 7200 * number, *(ForecastRange(made, made, made),) * 2, None) for number in range(30)
    ]
    usual = ForecastCalibration(on_time, NOW).calibrate(computed(HOUR, HOUR, HOUR), NOW)
    found = ForecastCalibration(on_time + waits, NOW).calibrate(computed(HOUR, HOUR, HOUR), NOW)
    assert found.latest_at > usual.latest_at


def test_many_starts_outside_widen_the_range() -> None:
    generator = random.Random(1)
    errors = [(HOUR * generator.lognormvariate(0, 1), 1e6 - 7200 * number) for number in range(120)]
    accurate, missed = (
        ForecastCalibration([past(waited, ago=ago, shown=shown) for waited, ago in errors], NOW).calibrate(
            computed(HOUR, HOUR, HOUR), NOW
        )
        for shown in (1e3, 0.01)
    )
    assert missed.earliest_at < accurate.earliest_at
    assert missed.latest_at > accurate.latest_at


@pytest.mark.parametrize("bias", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("spread", [0.2, 1.0])
def test_about_eight_of_ten_starts_are_within_whatever_the_errors_of_the_simulation(
    bias: float, spread: float
) -> None:
    generator = random.Random(7)
    known: list[PastForecast] = []
    for number in range(600):
        now = NOW + timedelta(hours=2 * number)
        likely = HOUR * generator.lognormvariate(0, 1.5)
        made = computed(likely, likely, likely)
        shown = ForecastCalibration(known, now).calibrate(
            Forecast(*(now + timedelta(seconds=likely),) * 3, made.confidence), now
        )
        times = (shown.earliest_at, shown.likely_at, shown.latest_at)
        at = now.timestamp()
        started = at + likely * bias * generator.lognormvariate(0, spread)
        middle = ForecastRange(*(at + likely,) * 3)
        known.append(PastForecast(at, middle, ForecastRange(*(one.timestamp() for one in times)), started))
    accuracy = measure_accuracy(known[100:])
    assert 0.75 <= accuracy.within / accuracy.of <= 0.85
    assert min(accuracy.early, accuracy.late) > 0.05 * accuracy.of


@given(
    st.lists(st.tuples(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1e6), st.booleans()), max_size=60),
    st.tuples(st.floats(0, 1e7), st.floats(0, 1e7), st.floats(0, 1e7)),
)
def test_a_range_is_never_in_the_past_or_reversed(
    outcomes: list[tuple[float, float, float, bool]], waits: tuple[float, float, float]
) -> None:
    known = [
        past(waited, likely=likely, ago=ago)
        if started
        else PastForecast(AT - ago, *(ForecastRange(AT, AT, AT),) * 2)
        for waited, likely, ago, started in outcomes
    ]
    found = ForecastCalibration(known, NOW).calibrate(computed(*sorted(waits)), NOW)
    assert NOW <= found.earliest_at <= found.likely_at <= found.latest_at


def test_accuracy_counts_starts_before_within_and_after_the_range() -> None:
    outcomes = [past(waited) for waited in (0.4 * HOUR, HOUR, 1.2 * HOUR, 1.6 * HOUR)]
    waiting = PastForecast(AT, *(ForecastRange(AT, AT, AT),) * 2)
    assert measure_accuracy([*outcomes, waiting]) == ForecastAccuracy(2, 4, 1, 1, 0.92)
    assert measure_accuracy([waiting]) == ForecastAccuracy()
