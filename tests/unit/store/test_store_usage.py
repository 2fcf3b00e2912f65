from collections.abc import Iterator
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert

from heliostat.models import Attempt, Job, JobState, PlacementRequest, Resources
from heliostat.store import job_writes, schema
from heliostat.store.database import Store
from heliostat.store.usage import DailyUsage, list_daily_usage, sum_requested_gpus
from unit.auth.stand_ins import new_store
from unit.store.made_up import NOW, a_job, add_people

HOUR = timedelta(hours=1)
SINCE = NOW - timedelta(days=7)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as made:
        made.write(add_people)
        yield made


def ran(store: Store, job: Job, begun: Any, ended: Any, gpu_type: str | None = "A100", number: int = 1) -> None:
    """An attempt of a job that is there already or not; without an end it still runs."""
    attempt = Attempt(f"{job.id}.{number}", replace(job, attempt=number), "n1", gpu_type=gpu_type)

    def change(tx: Any) -> None:
        if number == 1:
            job_writes.add_jobs(tx, [job])
        job_writes.add_attempts(tx, [attempt], begun or ended)
        values = {"started_at": begun, "ended_at": ended, "state": JobState.COMPLETED}
        job_writes.update_attempt(tx, job.id, number, values)

    store.write(change)


def used(store: Store) -> list[DailyUsage]:
    with store.read() as conn:
        return list_daily_usage(conn, SINCE, NOW)


def test_sums_are_per_day_of_the_end_user_project_class_and_gpu_type(store: Store) -> None:
    two_gpus = Resources(cpus=3, memory_mib=100, gpus=2)
    ran(store, a_job(1, resources=two_gpus), NOW - 3 * HOUR, NOW - 2 * HOUR)
    ran(store, a_job(2, resources=two_gpus), NOW - 3 * HOUR, NOW - HOUR)
    ran(store, a_job(3, resources=two_gpus), NOW - 30 * HOUR, NOW - 29 * HOUR)
    ran(store, a_job(4, resources=two_gpus, priority_class="urgent"), NOW - 3 * HOUR, NOW - 2 * HOUR)
    ran(store, a_job(5, resources=two_gpus), NOW - 3 * HOUR, NOW - 2 * HOUR, gpu_type="T4")
    hour = (2 * 3600.0, 3 * 3600.0, 100 * 3600.0)
    today, yesterday = date(2026, 3, 1), date(2026, 2, 28)
    assert used(store) == [
        DailyUsage(yesterday, "ann", "default", "normal", "A100", *hour, 1),
        DailyUsage(today, "ann", "default", "normal", "A100", *(3 * part for part in hour), 2),
        DailyUsage(today, "ann", "default", "normal", "T4", *hour, 1),
        DailyUsage(today, "ann", "default", "urgent", "A100", *hour, 1),
    ]


def test_an_attempt_that_began_before_counts_from_then_on_only(store: Store) -> None:
    job = a_job(1, resources=Resources(gpus=1))
    ran(store, job, SINCE - 5 * HOUR, SINCE + HOUR)
    ran(store, a_job(2, resources=Resources(gpus=1)), SINCE - 5 * HOUR, SINCE)
    assert [(row.gpu_seconds, row.attempts) for row in used(store)] == [(3600.0, 1)]


def test_every_task_and_part_of_a_gpu_counts(store: Store) -> None:
    ran(
        store,
        a_job(1, resources=Resources(gpus=0.5), placement=PlacementRequest(tasks=4)),
        NOW - 2 * HOUR,
        NOW - HOUR,
    )
    (row,) = used(store)
    assert (row.gpu_seconds, row.cpu_seconds) == (2 * 3600.0, 4 * 3600.0)


def test_each_attempt_of_a_job_counts(store: Store) -> None:
    job = a_job(1, resources=Resources(gpus=1))
    ran(store, job, NOW - 3 * HOUR, NOW - 2 * HOUR)
    ran(store, job, NOW - 2 * HOUR, NOW - HOUR, number=2)
    assert [(row.gpu_seconds, row.attempts) for row in used(store)] == [(7200.0, 2)]


def test_what_still_runs_or_never_ran_is_left_out(store: Store) -> None:
    ran(store, a_job(1), NOW - HOUR, None)
    ran(store, a_job(2), None, NOW - HOUR)
    assert used(store) == []


def test_a_clock_that_was_set_back_makes_no_usage_below_nothing(store: Store) -> None:
    ran(store, a_job(1, resources=Resources(gpus=1)), NOW - HOUR, NOW - 2 * HOUR)
    ran(store, a_job(2, resources=Resources(gpus=1)), NOW - HOUR, NOW + 9 * HOUR)
    assert sum(row.gpu_seconds for row in used(store)) == 3600.0


def test_jobs_without_gpus_have_no_type(store: Store) -> None:
    ran(store, a_job(1), NOW - 2 * HOUR, NOW - HOUR, gpu_type=None)
    (row,) = used(store)
    assert (row.gpu_type, row.gpu_seconds, row.cpu_seconds) == (None, 0.0, 3600.0)


def test_gpus_asked_for_are_those_of_unfinished_jobs_by_user_and_project(store: Store) -> None:
    def change(tx: Any) -> None:
        for name in ("other", "slices"):
            tx.conn.execute(insert(schema.projects).values(name=name, department="default"))
        jobs = [
            a_job(1, resources=Resources(gpus=2)),
            a_job(2, resources=Resources(gpus=1), placement=PlacementRequest(tasks=3), state=JobState.RUNNING),
            a_job(3, resources=Resources(gpus=0.5), project="other", state=JobState.HELD),
            a_job(4, resources=Resources(gpus=8), state=JobState.FAILED, ended_at=NOW),
            a_job(5),
            a_job(6, resources=Resources(gpus=2, gpu_type="A30-1g.6gb"), project="slices"),
        ]
        job_writes.add_jobs(tx, jobs)

    store.write(change)
    with store.read() as conn:
        expected = {("ann", "default"): 5.0, ("ann", "other"): 0.5, ("ann", "slices"): 0.5}
        assert sum_requested_gpus(conn) == expected


def test_credit_of_a_job_counts_once_for_its_last_attempt(store: Store) -> None:
    job = a_job(1, resources=Resources(gpus=2), attempt=2, credit_gpu_hours=0.5)
    ran(store, job, NOW - 5 * HOUR, NOW - 4 * HOUR)
    ran(store, job, NOW - 3 * HOUR, NOW - 2 * HOUR, number=2)
    (row,) = used(store)
    assert (row.gpu_seconds, row.credit_gpu_seconds) == (4 * 3600.0, 1800.0)
