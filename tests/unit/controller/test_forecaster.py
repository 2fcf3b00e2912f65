"""The thread that foretells: what it keeps, stores and survives."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.controller import forecaster as module
from heliostat.controller.controller import Controller
from heliostat.controller.forecaster import Forecaster, ForecastTiming
from heliostat.engines.contract import Engine
from heliostat.errors import StoreUnavailable, TooManyRequests
from heliostat.models import Job, JobState, Resources
from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.models.jobs import WaitReason
from heliostat.scheduling.forecast_calibration import ForecastAccuracy
from heliostat.scheduling.queue_state import QueueState
from heliostat.store import forecasts, job_writes
from heliostat.store.database import Store
from support.new_database import create_database
from support.waiting import wait_until
from unit.scheduling.builders import a_node, a_queue_state, a_running_job
from unit.store.made_up import NOW, a_job, add_people

ONE_GPU = Resources(1, 10, 1)
LOCAL = SimpleNamespace(name="local", capabilities=SimpleNamespace(has_own_queue=False))


class Queue:
    """Stands in for the controller."""

    is_paused = False

    def __init__(self, *jobs: Job) -> None:
        self.jobs = list(jobs)
        self.forks = 0

    def copy_queue_state(self) -> QueueState:
        self.forks += 1
        return a_queue_state((a_node("a", gpus=1),), self.jobs)

    latest_queue_state = copy_queue_state


def running(number: int = 1) -> Job:
    return a_running_job(number, "a", ONE_GPU, devices=("a-0",), time_limit_seconds=3600)


def waiting(number: int) -> Job:
    return a_job(number, resources=ONE_GPU, time_limit_seconds=3600)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    create_database(tmp_path / "db")
    store = Store(tmp_path / "db")
    store.write(add_people)
    store.write(lambda tx: job_writes.add_jobs(tx, [waiting(number) for number in (1, 2, 3)]))
    yield store
    store.close()


def a_forecaster(store: Store, queue: Queue, **timing: float) -> Forecaster:
    timings = replace(ForecastTiming(), **timing)
    return Forecaster(store, cast("Controller", queue), lambda: NOW, engine=cast("Engine", LOCAL), timing=timings)


def test_a_waiting_job_is_foretold_and_one_that_runs_is_not(store: Store) -> None:
    made = a_forecaster(store, Queue(running(), waiting(2)))
    made._round()
    found = made.forecast_of(waiting(2))
    assert found is not None
    assert NOW < found.earliest_at < found.likely_at <= NOW + timedelta(hours=1) < found.latest_at
    assert found.confidence is None  # no outcomes are known yet
    assert made.forecast_of(replace(waiting(2), state=JobState.HELD)) is None
    assert made.forecast_of(running()) is None


def test_no_range_begins_before_the_begin_time_of_the_job(store: Store) -> None:
    begin = NOW + timedelta(hours=5)
    made = a_forecaster(store, Queue(running(), replace(waiting(2), begin_at=begin)))
    made._round()
    found = made.forecast_of(waiting(2))
    assert found is not None
    assert found.earliest_at >= begin
    asked = made.estimate_start(replace(waiting(0), begin_at=begin))
    assert asked.forecast is not None
    assert asked.forecast.earliest_at >= begin


def test_how_good_it_was_is_known_once_jobs_have_started(store: Store) -> None:
    queue = Queue(running(), waiting(2), waiting(3))
    made = a_forecaster(store, queue)
    made._round()
    assert made.accuracy() == ForecastAccuracy(0, 0)
    store.write(
        lambda tx: job_writes.update_job(
            tx, 2, {"started_at": NOW + timedelta(minutes=30), "state": JobState.RUNNING}
        )
    )
    store.write(
        lambda tx: job_writes.update_job(tx, 3, {"started_at": NOW + timedelta(days=3), "state": JobState.RUNNING})
    )
    queue.jobs = []
    a_forecaster(store, queue)._round()  # also after a restart
    made._round()
    accuracy = made.accuracy()
    assert (accuracy.within, accuracy.of, accuracy.late) == (1, 2, 1)


def test_an_empty_queue_is_left_alone_until_something_changes(store: Store) -> None:
    queue = Queue()
    made = a_forecaster(store, queue, min_pause_seconds=0.01, settling_seconds=0.01)
    assert made._run_once() == threading.TIMEOUT_MAX
    assert queue.forks == 1


def test_forecasts_are_renewed_as_soon_as_the_first_job_should_have_started(store: Store) -> None:
    timing = {"min_pause_seconds": 0.01, "settling_seconds": 0.01, "max_age_seconds": 1e6}
    made = a_forecaster(store, Queue(running(), waiting(2)), **timing)
    found = made._run_once(), made.forecast_of(waiting(2))
    assert found[1] is not None
    assert found[0] == (found[1].likely_at - NOW).total_seconds()


def test_it_goes_on_after_the_database_could_not_be_written(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    timing = {"min_pause_seconds": 0.01, "settling_seconds": 0.01, "rest_factor": 0.0}
    made = a_forecaster(store, Queue(running(), waiting(2)), **timing)
    write, failed = store.write, []

    def refuse(change: Any) -> Any:
        monkeypatch.setattr(store, "write", write)
        failed.append(change)
        raise StoreUnavailable("The database cannot be written: told by the test.")

    monkeypatch.setattr(store, "write", refuse)
    made.start()
    try:
        wait_until(lambda: failed, "it has failed once", 60)
        store.write(lambda tx: job_writes.update_job(tx, 2, {"priority": -1}))
        wait_until(lambda: made._stored == {2}, "it has stored its forecast", 60)
    finally:
        made.close()


def test_it_stops_at_once_also_in_the_middle_of_a_thought(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    thinking = []

    def think_for_ever(board: Any, now: Any, effort: Any) -> dict[int, Any]:
        while effort.may_continue():
            thinking.append(1)
        return {}

    monkeypatch.setattr(module, "forecast_starts", think_for_ever)
    made = a_forecaster(store, Queue(running(), waiting(2)), budget_seconds=1_000_000.0, settling_seconds=0.0)
    made.start()
    wait_until(lambda: thinking, "it thinks", 60)
    made.close()  # returns when the thread has ended; with such a budget that would take days


def test_a_paused_server_shows_and_stores_no_forecast_and_the_resumed_one_does(store: Store) -> None:
    queue = Queue(running(), waiting(2))
    queue.is_paused = True
    made = a_forecaster(store, queue)
    made._round()
    assert made.forecast_of(waiting(2)) is None
    with store.read() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM forecasts").scalar() == 0
    queue.is_paused = False
    assert made.forecast_of(waiting(2)) is not None


def test_a_question_is_answered_and_leaves_no_trace(store: Store) -> None:
    made = a_forecaster(store, Queue(running(), waiting(2)))
    answer = made.estimate_start(replace(waiting(0), priority_class="interactive"))
    assert answer.forecast is not None
    assert answer.forecast.limits_at in {NOW + timedelta(hours=1), NOW + timedelta(hours=2)}
    assert made.forecast_of(waiting(3)) is None
    with store.read() as conn:
        assert conn.exec_driver_sql("SELECT count(*) FROM forecasts").scalar() == 0


def test_what_if_of_a_waiting_job_looks_at_the_queue_without_it(store: Store) -> None:
    large = replace(waiting(2), resources=Resources(1, 10, 1), time_limit_seconds=90000)
    made = a_forecaster(store, Queue(large))
    answer = made.estimate_start(large, instead_of=large)
    assert answer.forecast is not None
    assert answer.forecast.latest_at == NOW
    assert answer.starts_now


def test_those_who_ask_while_others_are_answered_are_told_to_come_again(store: Store) -> None:
    made = a_forecaster(store, Queue(), max_wait_seconds=0.01)
    with made._compute_slot(), pytest.raises(TooManyRequests):
        made.estimate_start(waiting(0))
    made.estimate_start(waiting(0))


def test_the_thread_does_not_rest_while_a_user_waits_for_an_answer(store: Store) -> None:
    made = a_forecaster(store, Queue(running(), waiting(2)), step_rest_factor=1e12)  # a rest would take years
    with made._limit_concurrency("ann"):
        made._round()
    assert made.forecast_of(waiting(2)) is not None


def test_nobody_asks_twice_at_once_and_not_too_many_wait(store: Store) -> None:
    made = a_forecaster(store, Queue(), max_concurrent_questions=1)
    with made._limit_concurrency("ann"), pytest.raises(TooManyRequests):
        made.estimate_start(waiting(0))
    with made._limit_concurrency("bob"), pytest.raises(TooManyRequests):
        made.estimate_start(waiting(0))
    made.estimate_start(waiting(0))


class SlurmQueue(Queue):
    """Its engine plans every waiting job for an hour from now."""

    def engine_wait_reason(self, job: Job) -> WaitReason:
        return WaitReason("waits", "resources", starts_at=NOW + timedelta(hours=1), planned_by="Slurm's plan")


def test_the_plan_of_an_engine_is_calibrated_by_its_own_past(store: Store) -> None:
    """Slurm plans by time limits: here all jobs started after a tenth of the planned wait."""
    past = {number: _planned(number, started_after=0.1) for number in range(10, 40)}
    store.write(lambda tx: job_writes.add_jobs(tx, [waiting(number) for number in past]))
    store.write(lambda tx: forecasts.add_forecasts(tx, "slurm", past))
    outcomes = {number: NOW - timedelta(days=number) + timedelta(minutes=6) for number in past}
    store.write(lambda tx: forecasts.record_forecast_outcomes(tx, forecasts.ForecastOutcomes(outcomes, [])))
    engine = SimpleNamespace(name="slurm", capabilities=SimpleNamespace(has_own_queue=True))
    made = Forecaster(
        store, cast("Controller", SlurmQueue(waiting(2))), lambda: NOW, engine=cast("Engine", engine)
    )
    before = made.forecast_of(waiting(2))
    made._round()
    found = made.forecast_of(waiting(2))
    assert before is not None
    assert found is not None
    assert (before.confidence, found.confidence) == (None, 0.8)
    assert NOW < found.likely_at < NOW + timedelta(minutes=10) < before.likely_at
    assert found.source == "Slurm's plan"
    with store.read() as conn:
        assert len(forecasts.list_past_forecasts(conn, "slurm", 100)) == len(past) + 1


def _planned(days_ago: int, started_after: float) -> PastForecast:
    made = (NOW - timedelta(days=days_ago)).timestamp()
    planned = ForecastRange(*(made + 3600.0,) * 3)
    return PastForecast(made, planned, planned, made + started_after * 3600)
