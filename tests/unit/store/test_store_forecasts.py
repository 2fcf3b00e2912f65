"""First forecasts, their outcome, and how long jobs ran."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from heliostat.models import JobId, JobState
from heliostat.models.forecasts import ForecastRange, PastForecast
from heliostat.scheduling.forecast_calibration import measure_accuracy
from heliostat.store import forecasts, job_writes
from heliostat.store.database import Store
from heliostat.store.forecasts import FinishedRun
from heliostat.store.history import add_finished_jobs
from support.new_database import create_database
from unit.store.made_up import NOW, a_job, add_people

HOUR = timedelta(hours=1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    create_database(tmp_path / "db")
    store = Store(tmp_path / "db")
    store.write(add_people)
    store.write(lambda tx: job_writes.add_jobs(tx, [a_job(number) for number in (1, 2, 3)]))
    yield store
    store.close()


def tell(store: Store, job_id: JobId, earliest: float = 1, latest: float = 2) -> None:
    begin, end = ((NOW + hours * HOUR).timestamp() for hours in (earliest, latest))
    made = PastForecast(NOW.timestamp(), ForecastRange(begin, begin, end), ForecastRange(begin, begin, end))
    store.write(lambda tx: forecasts.add_forecasts(tx, "local", {job_id: made}))


def start(store: Store, job_id: JobId, hours: float) -> None:
    store.write(lambda tx: job_writes.update_job(tx, job_id, {"started_at": NOW + hours * HOUR}))


def settle(store: Store) -> tuple[int, int]:
    with store.read() as conn:
        outcome = forecasts.find_unrecorded_outcomes(conn)
    store.write(lambda tx: forecasts.record_forecast_outcomes(tx, outcome))
    with store.read() as conn:
        accuracy = measure_accuracy(forecasts.list_past_forecasts(conn, "local", 100))
    return accuracy.within, accuracy.of


def test_a_start_within_the_range_is_a_hit_and_others_are_not(store: Store) -> None:
    for job_id, hours in ((1, 1.5), (2, 3.0), (3, 2.0001)):
        tell(store, job_id)
        start(store, job_id, hours)
    assert settle(store) == (1, 3)


def test_the_first_forecast_and_the_first_start_stay(store: Store) -> None:
    tell(store, 1)
    tell(store, 1, earliest=5, latest=6)
    start(store, 1, 1.5)
    assert settle(store) == (1, 1)
    start(store, 1, 9.0)
    assert settle(store) == (1, 1)


def test_one_that_ends_without_starting_is_forgotten(store: Store) -> None:
    tell(store, 1)
    store.write(lambda tx: job_writes.update_job(tx, 1, {"ended_at": NOW, "state": JobState.CANCELLED}))
    assert settle(store) == (0, 0)
    with store.read() as conn:
        assert forecasts.find_unrecorded_outcomes(conn) == forecasts.ForecastOutcomes({}, [])


def test_the_newest_forecasts_of_an_engine_are_listed_oldest_first(store: Store) -> None:
    for job_id, hours in ((1, 9.0), (2, 1.5), (3, 1.6)):
        tell(store, job_id)
        start(store, job_id, hours)
    settle(store)
    with store.read() as conn:
        newest = forecasts.list_past_forecasts(conn, "local", 2)
        assert [one.started_at for one in newest] == [(NOW + hours * HOUR).timestamp() for hours in (1.5, 1.6)]
        assert forecasts.list_past_forecasts(conn, "slurm", 2) == []


def test_submissions_are_listed_oldest_first_without_jobs_that_still_wait(store: Store) -> None:
    ended = {"started_at": NOW, "ended_at": NOW + HOUR, "attempt": 1, "node": "a"}
    jobs = [a_job(number, state=JobState.COMPLETED, **ended) for number in (4, 5)]
    store.write(lambda tx: add_finished_jobs(tx, jobs))
    with store.read() as conn:
        assert [job.id for job in forecasts.list_submissions(conn, NOW - HOUR, 10)] == [4, 5]
        assert [job.id for job in forecasts.list_submissions(conn, NOW - HOUR, 1)] == [5]
        assert forecasts.list_submissions(conn, NOW + HOUR, 10) == []


def test_old_ones_are_dropped(store: Store) -> None:
    tell(store, 1)
    start(store, 1, 1.5)
    settle(store)
    store.write(lambda tx: forecasts.remove_old_forecasts(tx, NOW + HOUR))
    assert settle(store) == (0, 0)


def test_finished_jobs_tell_how_long_they_ran_and_lost_ones_do_not(store: Store) -> None:
    times = {"started_at": NOW, "ended_at": NOW + HOUR, "attempt": 1, "node": "a", "time_limit_seconds": 7200}
    ends = {4: JobState.COMPLETED, 5: JobState.LOST, 6: JobState.TIMED_OUT}
    jobs = [a_job(number, state=state, name=f"n{number}", **times) for number, state in ends.items()]
    store.write(lambda tx: add_finished_jobs(tx, jobs))
    with store.read() as conn:
        found = forecasts.list_finished_runs(conn, NOW - HOUR, 10)
        assert found == [FinishedRun("ann", "default", name, 3600.0, 7200, "batch") for name in ("n4", "n6")]
        assert forecasts.list_finished_runs(conn, NOW - HOUR, 1) == found[1:]
        assert forecasts.list_finished_runs(conn, NOW + 2 * HOUR, 10) == []
