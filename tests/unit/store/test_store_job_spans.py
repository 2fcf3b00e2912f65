"""Waits and runs of jobs, as the database has them."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from heliostat.models import Attempt, Job, JobSpan, JobState, PlacementRequest, Resources
from heliostat.store import job_writes
from heliostat.store.database import Store, Transaction
from heliostat.store.history import add_finished_jobs
from heliostat.store.job_spans import read_job_spans
from support.new_database import create_database
from unit.store.made_up import NOW, a_job, add_people


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    create_database(tmp_path / "db")
    store = Store(tmp_path / "db")
    store.write(add_people)
    yield store
    store.close()


def hours_ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def spans_of(store: Store, hours: float = 100) -> list[JobSpan]:
    """Of the last hours."""
    with store.read() as conn:
        return list(read_job_spans(conn, hours_ago(hours), NOW))


def add(store: Store, *jobs: Job) -> None:
    store.write(lambda tx: job_writes.add_jobs(tx, list(jobs)))


def add_run(store: Store, job: Job, started: datetime, ended: datetime | None) -> None:
    def write(tx: Transaction) -> None:
        job_writes.add_attempts(tx, [Attempt(job.attempt_id, job, "a", gpu_type="V100")], started)
        job_writes.update_attempt(tx, job.id, job.attempt, {"started_at": started, "ended_at": ended})

    store.write(write)


def test_a_run_has_the_resources_of_all_tasks_and_the_total_wait_of_its_job(store: Store) -> None:
    job = a_job(
        7,
        submitted_at=hours_ago(9),
        waited_seconds=3600.0,
        resources=Resources(4, 100, 2, "A100"),
        placement=PlacementRequest(tasks=3),
        priority_class="interactive",
        array_id=5,
        array_limit=2,
        state=JobState.RUNNING,
        started_at=hours_ago(2),
        attempt=2,
    )
    add(store, job)
    add_run(store, replace(job, attempt=1), hours_ago(8), hours_ago(3))
    add_run(store, job, hours_ago(2), None)
    described = (7, "default", "ann", "interactive", 6.0, 12, 300, "V100", 5, 2, False)
    times = [
        (hours_ago(9).timestamp(), 3600.0, hours_ago(8).timestamp(), hours_ago(3).timestamp()),
        (hours_ago(9).timestamp(), 3600.0, hours_ago(2).timestamp(), None),
    ]
    assert spans_of(store) == [(*described, *each) for each in times]


def test_runs_that_ended_before_and_imported_jobs_are_not_read(store: Store) -> None:
    ran = {"state": JobState.COMPLETED, "attempt": 1, "node": "a"}
    jobs = [
        a_job(1, started_at=hours_ago(9), ended_at=hours_ago(8), **ran),
        a_job(2, started_at=hours_ago(9), ended_at=hours_ago(1), origin="slurm:c:9", **ran),
        a_job(3, started_at=hours_ago(9), ended_at=hours_ago(1), **ran),
    ]
    store.write(lambda tx: add_finished_jobs(tx, jobs))
    assert [span.job_id for span in spans_of(store, hours=5)] == [3]


def test_a_pending_job_has_waited_until_now_without_time_that_does_not_count(store: Store) -> None:
    add(
        store,
        a_job(1, submitted_at=hours_ago(5)),
        a_job(2, submitted_at=hours_ago(5), begin_at=hours_ago(2)),
        a_job(3, submitted_at=hours_ago(5), waits_since=hours_ago(1), waited_seconds=60.0),
        a_job(4, submitted_at=hours_ago(5), begin_at=hours_ago(-2)),
        a_job(5, submitted_at=hours_ago(5), state=JobState.STARTING, waited_seconds=60.0),
    )
    assert [(span.job_id, span.waited_seconds, span.started_at, span.ended_at) for span in spans_of(store)] == [
        (number, pytest.approx(seconds), None, None)
        for number, seconds in ((1, 5 * 3600), (2, 2 * 3600), (3, 3660), (4, 0), (5, 60))
    ]


def test_held_jobs_and_jobs_that_wait_for_another_job_are_not_read(store: Store) -> None:
    add(store, a_job(1, state=JobState.HELD, waited_seconds=60.0), a_job(2, parents_left=1))
    assert spans_of(store) == []


def test_a_job_that_was_cancelled_while_it_waited_has_a_wait_without_a_run(store: Store) -> None:
    cancelled = {"state": JobState.CANCELLED, "submitted_at": hours_ago(5), "ended_at": hours_ago(2)}
    while_running = a_job(2, started_at=hours_ago(3), attempt=1, **cancelled)
    add(store, a_job(1, waited_seconds=60.0, **cancelled), while_running)
    add_run(store, while_running, hours_ago(3), hours_ago(2))
    found = [(span.job_id, span.waited_seconds, span.started_at is None) for span in spans_of(store)]
    assert sorted(found) == [(1, 60.0, True), (2, 0.0, False)]
    assert [span.job_id for span in spans_of(store, hours=1)] == []


def test_a_job_for_a_reservation_says_so(store: Store) -> None:
    add(store, a_job(1, placement=PlacementRequest(reservation="course")), a_job(2))
    assert [span.waits_for_reservation for span in spans_of(store)] == [True, False]
