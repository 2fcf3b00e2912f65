"""Run time estimates from finished jobs."""

import pytest

from heliostat.scheduling.duration_estimator import MIN_SAMPLES, DurationEstimator, RunDuration
from unit.scheduling.builders import a_job

HOUR = 3600.0
DAY = 24 * HOUR


def known(*past: RunDuration) -> DurationEstimator:
    durations = DurationEstimator(DAY)
    durations.add_samples(past)
    return durations


def ran(part: float, user: str = "ann", project: str = "default", name: str = "job") -> RunDuration:
    return RunDuration(user, project, name, part * HOUR, HOUR)


def test_without_samples_all_times_up_to_the_limit_are_possible() -> None:
    job, nothing = a_job(1, time_limit_seconds=100), known()
    assert not nothing.has_samples_for(job)
    assert [nothing.estimate_seconds(job, 0.0, chance) for chance in (0.0, 0.5, 1.0)] == [0.0, 50.0, 100.0]
    assert nothing.estimate_seconds(job, 80.0, 0.5) == 90.0


def test_builds_are_compared_with_builds_and_are_short_without_samples() -> None:
    build = a_job(1, kind="build", name="environment 1", time_limit_seconds=7200)
    batch_jobs = [ran(0.9)] * MIN_SAMPLES
    assert known(*batch_jobs).estimate_seconds(build, 0.0, 0.5) == 300.0
    builds = [RunDuration("bob", "vision", f"environment {n}", 72.0, 7200.0, "build") for n in range(MIN_SAMPLES)]
    assert known(*batch_jobs, *builds).estimate_seconds(build, 0.0, 0.5) == pytest.approx(72.0)


def test_a_job_without_a_limit_has_the_assumed_limit() -> None:
    assert known().estimate_seconds(a_job(1), 0.0, 1.0) == DAY


def test_samples_are_fractions_of_the_time_limit() -> None:
    durations = known(*[ran(0.5)] * MIN_SAMPLES)
    assert durations.estimate_seconds(a_job(1, time_limit_seconds=1000), 0.0, 0.3) == 500.0


def test_jobs_of_the_same_name_count_before_those_of_the_user_the_project_and_all() -> None:
    durations = known(
        *[ran(0.1)] * MIN_SAMPLES,
        *[ran(0.2, name="other")] * 50,
        *[ran(0.3, user="bob")] * 100,
        *[ran(0.4, user="cat", project="vision")] * 200,
    )
    limit = 1000
    assert durations.estimate_seconds(a_job(1, time_limit_seconds=limit), 0.0, 0.9) == pytest.approx(100)
    assert durations.estimate_seconds(a_job(1, name="new", time_limit_seconds=limit), 0.0, 0.9) == pytest.approx(
        200
    )
    assert durations.estimate_seconds(a_job(1, user="dan", time_limit_seconds=limit), 0.0, 0.9) == pytest.approx(
        300
    )
    stranger = a_job(1, user="dan", project="audio", time_limit_seconds=limit)
    assert durations.estimate_seconds(stranger, 0.0, 0.9) == pytest.approx(400)


def test_too_few_samples_are_ignored() -> None:
    assert not known(*[ran(0.5)] * (MIN_SAMPLES - 1)).has_samples_for(a_job(1, time_limit_seconds=10))


def test_a_job_that_has_run_for_long_does_not_end_in_the_past() -> None:
    durations = known(*(ran(tenths / 10) for tenths in range(1, 11)))
    job = a_job(1, time_limit_seconds=1000)
    assert durations.estimate_seconds(job, 450.0, 0.0) == pytest.approx(500)
    assert durations.estimate_seconds(job, 950.0, 0.0) == pytest.approx(1000)
    assert durations.estimate_seconds(job, 1500.0, 0.0) > 1500


def test_a_job_that_has_outlived_all_similar_ones_is_expected_to_run_as_long_again() -> None:
    limited = known(*[ran(0.1)] * MIN_SAMPLES)
    job = a_job(1, time_limit_seconds=36_000)
    assert limited.estimate_seconds(job, 5000.0, 0.5) == 10_000.0
    assert limited.estimate_seconds(job, 30_000.0, 0.5) == 36_000.0
    unlimited = known(*[RunDuration("ann", "default", "job", 60.0, None)] * MIN_SAMPLES)
    assert unlimited.estimate_seconds(a_job(1), 2 * DAY, 0.5) == 4 * DAY


def test_without_samples_the_assumed_limit_doubles_when_it_is_exceeded() -> None:
    assert known().limit_seconds(a_job(1), 0.9 * DAY) == DAY
    assert known().estimate_seconds(a_job(1), 2 * DAY, 0.5) == 3 * DAY
    overtime = a_job(1, time_limit_seconds=100, overtime=True)
    assert known().limit_seconds(overtime, 500.0) == 500.0 + DAY


def test_jobs_without_a_limit_have_separate_samples_in_seconds() -> None:
    without = [RunDuration("ann", "default", "job", 77.0, None)] * MIN_SAMPLES
    durations = known(*[ran(0.5)] * MIN_SAMPLES, *without)
    assert durations.estimate_seconds(a_job(1), 0.0, 0.5) == 77.0
