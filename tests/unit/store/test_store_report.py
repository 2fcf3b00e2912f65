"""What the database sums up for a month."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from heliostat.models import JobState, PlacementRequest, Resources
from heliostat.store import schema
from heliostat.store.database import Store, Transaction
from heliostat.store.history import add_finished_jobs
from heliostat.store.usage_report import (
    ReportPeriod,
    ReportScope,
    WaitTimes,
    compute_wait_times,
    sum_usage,
    total_gpu_hours,
)
from support.new_database import create_database
from unit.store.made_up import a_job, add_people

MARCH = datetime(2026, 3, 1, tzinfo=UTC)
SPAN = ReportPeriod(MARCH, datetime(2026, 4, 1, tzinfo=UTC), datetime(2026, 3, 20, tzinfo=UTC))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    create_database(tmp_path / "db")
    store = Store(tmp_path / "db")
    store.write(_more_people)
    yield store
    store.close()


def _more_people(tx: Transaction) -> None:
    add_people(tx)
    tx.conn.execute(insert(schema.departments).values(name="lab"))
    tx.conn.execute(insert(schema.projects).values(name="vision", department="lab"))
    tx.conn.execute(insert(schema.users).values(name="bob", role="user", active=True, created_at=0.0))


def over(
    number: int, start: datetime, hours: float, wait: float = 60.0, gpus: float = 2, **fields: object
) -> object:
    times = {"submitted_at": start - timedelta(seconds=wait), "started_at": start}
    ended = start + timedelta(hours=hours)
    rest = {"state": JobState.COMPLETED, "attempt": 1, "node": "a", "resources": Resources(4, 100, gpus)}
    return a_job(number, **{**times, "ended_at": ended, **rest, **fields})


def keep(store: Store, *jobs: object) -> None:
    store.write(lambda tx: add_finished_jobs(tx, list(jobs)))  # type: ignore[arg-type]


def test_hours_are_summed_up_by_project_user_and_department(store: Store) -> None:
    keep(
        store,
        over(1, MARCH, 3),
        over(2, MARCH, 1, project="vision"),
        over(3, MARCH, 1, project="vision", user="bob"),
    )
    with store.read() as conn:
        assert [
            (one.name, one.jobs, one.gpu_hours, one.cpu_hours) for one in sum_usage(conn, SPAN, "project")
        ] == [
            ("default", 1, 6.0, 12.0),
            ("vision", 2, 4.0, 8.0),
        ]
        assert [(one.name, one.gpu_hours) for one in sum_usage(conn, SPAN, "user")] == [("ann", 8.0), ("bob", 2.0)]
        assert [(one.name, one.jobs) for one in sum_usage(conn, SPAN, "department")] == [
            ("default", 1),
            ("lab", 2),
        ]
        assert total_gpu_hours(conn, SPAN) == 10.0


def test_only_the_part_within_the_month_counts(store: Store) -> None:
    keep(store, over(1, MARCH - timedelta(hours=5), 6), over(2, MARCH - timedelta(days=9), 1))
    keep(store, over(3, SPAN.end - timedelta(hours=1), 8), over(4, SPAN.end + timedelta(hours=1), 8))
    with store.read() as conn:
        (used,) = sum_usage(conn, SPAN, "project")
    assert (used.jobs, used.gpu_hours) == (2, 4.0)


def test_what_still_runs_counts_until_now(store: Store) -> None:
    keep(store, over(1, SPAN.now - timedelta(hours=2), 1))
    store.write(
        lambda tx: tx.conn.execute(update(schema.attempts).values(ended_at=None, state="running")) and None
    )
    with store.read() as conn:
        assert sum_usage(conn, SPAN, "user")[0].gpu_hours == 4.0


def test_all_tasks_of_a_job_count(store: Store) -> None:
    keep(store, over(1, MARCH, 1, placement=PlacementRequest(tasks=3)))
    with store.read() as conn:
        assert sum_usage(conn, SPAN, "user")[0].gpu_hours == 6.0


def test_mig_slices_count_as_their_part_of_a_gpu(store: Store) -> None:
    keep(store, over(1, MARCH, 7), over(2, MARCH, 7), over(3, MARCH, 1))  # two devices each
    for job_id, gpu_type in ((1, "A100-1g.10gb"), (2, "A30-2g.12gb")):
        change = update(schema.attempts).where(schema.attempts.c.job_id == job_id).values(gpu_type=gpu_type)
        store.write(lambda tx, change=change: tx.conn.execute(change) and None)  # type: ignore[misc]
    with store.read() as conn:
        hours = {one.name: round(one.gpu_hours, 6) for one in sum_usage(conn, SPAN, "gpu_type")}
        assert hours == {"A100-1g.10gb": 2.0, "A30-2g.12gb": 7.0, "unknown": 2.0}
        assert total_gpu_hours(conn, SPAN) == pytest.approx(11)


def test_wasted_is_what_failed_since_its_last_checkpoint(store: Store) -> None:
    saved = MARCH + timedelta(hours=3)
    keep(
        store,
        over(1, MARCH, 1, state=JobState.FAILED),
        over(2, MARCH, 4, state=JobState.TIMED_OUT, checkpointed_at=saved),
    )
    keep(
        store,
        over(3, MARCH, 1),
        over(4, MARCH, 1, state=JobState.CANCELLED),
        over(5, MARCH, 1, state=JobState.LOST),
    )
    keep(store, over(6, MARCH, 1, state=JobState.FAILED, checkpointed_at=MARCH - timedelta(hours=1)))
    with store.read() as conn:
        (used,) = sum_usage(conn, SPAN, "user")
    assert used.wasted_gpu_hours == 2 * (1 + 1 + 1 + 1)
    assert used.wasted_cpu_hours == 4 * (1 + 1 + 1 + 1)


@pytest.mark.parametrize(("waits", "median"), [((10, 20, 90), 20), ((10, 20, 30, 100), 25), ((7,), 7)])
def test_waits_have_a_mean_and_a_median(store: Store, waits: tuple[int, ...], median: float) -> None:
    keep(store, *(over(number, MARCH, 1, wait=wait) for number, wait in enumerate(waits, 1)))
    with store.read() as conn:
        assert compute_wait_times(conn, SPAN, "user") == {
            "ann": WaitTimes(pytest.approx(sum(waits) / len(waits)), pytest.approx(median))
        }


def test_a_scope_hides_everybody_else(store: Store) -> None:
    keep(store, over(1, MARCH, 1), over(2, MARCH, 1, project="vision", user="bob"))
    with store.read() as conn:
        assert [one.name for one in sum_usage(conn, SPAN, "user", ReportScope("ann", ()))] == ["ann"]
        assert [one.name for one in sum_usage(conn, SPAN, "user", ReportScope("ann", ["vision"]))] == [
            "ann",
            "bob",
        ]
        assert compute_wait_times(conn, SPAN, "user", ReportScope("ann", ())).keys() == {"ann"}
