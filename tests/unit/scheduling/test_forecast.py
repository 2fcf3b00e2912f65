"""Forecast of job starts by simulation of the queue."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from heliostat.models import JobState, Project, Quota, Reservation, Resources
from heliostat.scheduling.duration_estimator import RunDuration
from heliostat.scheduling.forecast import Forecast, ForecastOptions, forecast_starts
from heliostat.scheduling.queue_state import PastUsage, QueueState
from heliostat.scheduling.share_accounts import ShareAccounts
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job

ONE_GPU = Resources(1, 10, 1)
HOUR = 3600


def held(number: int, seconds: int, node: str = "a", **fields: object) -> object:
    return a_running_job(number, node, ONE_GPU, devices=(f"{node}-0",), time_limit_seconds=seconds, **fields)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def one_gpu_board(*waiting: int) -> QueueState:
    jobs = [a_job(number, ONE_GPU, time_limit_seconds=HOUR) for number in waiting]
    return a_queue_state((a_node("a", gpus=1),), [held(1, HOUR), *jobs])  # type: ignore[list-item]


def test_by_time_limits_each_job_waits_for_the_full_time_of_the_one_before() -> None:
    found = forecast_starts(one_gpu_board(2, 3, 4), NOW)
    assert [found[number].limits_at for number in (2, 3, 4)] == [after(HOUR), after(2 * HOUR), after(3 * HOUR)]


def test_the_range_comes_from_the_run_times_of_similar_jobs() -> None:
    board = one_gpu_board(2)
    board.add_history((RunDuration("ann", "default", "job", part * 36.0, HOUR) for part in range(1, 101)), ())
    found = forecast_starts(board, NOW)[2]
    assert after(300) < found.earliest_at < after(900)
    assert after(1400) < found.likely_at < after(2400)
    assert after(2700) < found.latest_at < after(3400)
    assert found.confidence is None  # known after calibration
    assert found.limits_at == after(HOUR)


def test_jobs_that_use_a_tenth_of_their_limit_let_the_next_ones_start_early() -> None:
    board = one_gpu_board(2, 3)
    board.add_history([RunDuration("ann", "default", "job", 360.0, HOUR)] * 10, ())
    found = forecast_starts(board, NOW)
    assert found[3] == Forecast(after(720), after(720), after(720), None, after(2 * HOUR))


def test_a_forecast_is_deterministic_and_does_not_change_the_queue_state() -> None:
    board = one_gpu_board(2, 3, 4)
    before = a_plan(board), sorted(board.jobs)
    assert forecast_starts(board, NOW) == forecast_starts(board, NOW)
    assert (a_plan(board), sorted(board.jobs)) == before
    assert board.jobs[2].state is JobState.PENDING


def test_an_infeasible_job_has_no_forecast() -> None:
    board = a_queue_state((a_node("a", gpus=1),), [a_job(2, Resources(1, 10, 8)), a_job(3, ONE_GPU)])
    assert forecast_starts(board, NOW).keys() == {3}


def test_starts_after_the_given_time_are_not_forecast() -> None:
    board = one_gpu_board(2, 3)
    board.add_history([RunDuration("ann", "default", "job", HOUR, HOUR)] * 10, ())
    found = forecast_starts(board, NOW, ForecastOptions(until=after(1.5 * HOUR)))
    assert found.keys() == {2}


def test_an_interrupted_forecast_returns_the_completed_runs() -> None:
    steps = iter([True, True, False])
    found = forecast_starts(
        one_gpu_board(2, 3, 4),
        NOW,
        ForecastOptions(may_continue=lambda: next(steps, False)),
    )
    assert found == {2: Forecast(NOW, after(HOUR), after(HOUR), None, after(HOUR), 0)}


def test_a_forecast_ends_when_the_requested_jobs_have_started() -> None:
    steps = []
    effort = ForecastOptions(runs=1, job_ids={2}, may_continue=lambda: steps.append(1) is None)
    assert 4 not in forecast_starts(one_gpu_board(2, 3, 4), NOW, effort)
    assert len(steps) == 4


def test_a_forecast_waits_for_the_end_of_maintenance() -> None:
    closed = Reservation("disk", ("a",), NOW, after(5 * HOUR))
    job = a_job(2, ONE_GPU, time_limit_seconds=HOUR)
    found = forecast_starts(a_queue_state((a_node("a", gpus=1),), [job], reservations=(closed,)), NOW)
    assert found[2].likely_at == found[2].limits_at == after(5 * HOUR)


def test_a_preempted_job_waits_again() -> None:
    scavenger = held(1, 10 * HOUR, priority_class="scavenger", preemptible=True)
    urgent = a_job(2, ONE_GPU, time_limit_seconds=HOUR, priority_class="interactive")
    found = forecast_starts(a_queue_state((a_node("a", gpus=1),), [scavenger, urgent]), NOW)  # type: ignore[list-item]
    assert found[2].latest_at == NOW
    assert 1 not in found


def test_a_job_that_is_being_stopped_releases_its_resources_soon() -> None:
    leaving = replace(held(1, 10 * HOUR), stop_requested="cancel")  # type: ignore[type-var]
    board = a_queue_state((a_node("a", gpus=1),), [leaving, a_job(2, ONE_GPU)])  # type: ignore[list-item]
    assert forecast_starts(board, NOW)[2].latest_at == after(10)


def test_a_long_queue_is_forecast_in_few_steps_and_nearly_as_exactly() -> None:
    nodes = tuple(a_node(f"n{number}", cpus=64, gpus=4) for number in range(5))
    jobs = [a_job(number, ONE_GPU, time_limit_seconds=600 + number % 7 * 100) for number in range(1, 201)]
    steps = []
    found = forecast_starts(
        a_queue_state(nodes, jobs),
        NOW,
        ForecastOptions(0, may_continue=lambda: steps.append(1) is None),
    )
    assert len(found) == 200
    assert len(steps) < 60
    last = max(one.latest_at for one in found.values())
    assert after(7000) < last < after(11000)


def test_a_job_whose_monthly_quota_is_used_up_starts_in_the_next_month() -> None:
    accounts = ShareAccounts(projects={"default": Project("default", "d", quota=Quota(gpu_hours_per_month=10))})
    busy = held(1, 20 * 24 * HOUR, user="bob", project="other")
    board = a_queue_state(
        (a_node("a", gpus=1),), [busy, a_job(2, ONE_GPU, time_limit_seconds=HOUR)], accounts=accounts
    )  # type: ignore[list-item]
    board.add_past_usage(
        [PastUsage("ann", "default", "normal", NOW.timestamp() - HOUR, NOW.timestamp(), 0.0, 12.0)], NOW
    )
    found = forecast_starts(board, NOW)[2]
    april = datetime(2026, 4, 1, tzinfo=UTC)
    assert (found.earliest_at, found.likely_at, found.latest_at, found.limits_at) == (april,) * 4
