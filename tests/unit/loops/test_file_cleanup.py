"""Which folders of jobs are removed, and which never."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from heliostat.loops.file_cleanup import JobFolderCleaner
from heliostat.models import JobRequest, JobSpec, JobState
from heliostat.models.schedules import Schedule, ScheduleState
from heliostat.store import job_writes
from heliostat.store.database import Store
from heliostat.store.schedules import add_schedule
from heliostat.store.uploads import list_needed_uploads
from unit.auth.stand_ins import new_store
from unit.store.made_up import NOW, a_job, add_people


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with new_store(tmp_path) as made:
        made.write(add_people)
        yield made


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return tmp_path / "jobs"


def add(store: Store, jobs: Path, number: int, days_ago: float | None) -> Path:
    """A job that ended then, or has not, and its folder."""
    ended_at = None if days_ago is None else NOW - timedelta(days=days_ago)
    state = JobState.RUNNING if days_ago is None else JobState.COMPLETED
    job = a_job(number, state=state, ended_at=ended_at, submitted_at=NOW - timedelta(days=400))
    store.write(lambda tx: job_writes.add_jobs(tx, [job]))
    folder = jobs / str(number)
    (folder / "work").mkdir(parents=True)
    (folder / "1.stdout").write_text("out")
    return folder


def sweeper(store: Store, jobs: Path, days: int = 30) -> JobFolderCleaner:
    return JobFolderCleaner(store, jobs, days, lambda: NOW)


def test_only_those_of_jobs_that_were_over_long_enough_ago_go(store: Store, jobs: Path) -> None:
    old, young = add(store, jobs, 1, 31), add(store, jobs, 2, 29)
    running, last = add(store, jobs, 3, None), add(store, jobs, 4, 300)
    unknown = jobs / "0"
    for other in (unknown, jobs / "mine"):
        other.mkdir()
    assert sweeper(store, jobs).clean_up() == 1
    assert not old.exists()
    assert young.exists()
    assert running.exists()
    assert unknown.exists()
    assert (jobs / "mine").exists()
    assert last.exists(), "the highest number tells which were given"
    assert sweeper(store, jobs).clean_up() == 0


def test_no_link_is_followed_and_no_depth_is_too_great(store: Store, jobs: Path, tmp_path: Path) -> None:
    old = add(store, jobs, 1, 31)
    add(store, jobs, 2, 31)
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("kept")
    (old / "work" / "link").symlink_to(precious)
    jobs.joinpath("3").symlink_to(precious)
    at = os.open(old / "work", os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("deeper", dir_fd=at)
        below = os.open("deeper", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    assert sweeper(store, jobs).clean_up() == 1
    assert not old.exists()
    assert (precious / "file").read_text() == "kept"


def test_without_a_number_of_days_nothing_ever_goes(store: Store, jobs: Path) -> None:
    old = add(store, jobs, 1, 3000)
    add(store, jobs, 2, 3000)
    forever = sweeper(store, jobs, days=0)
    forever.start()
    forever.close()
    assert old.exists()


def test_uploads_of_unfinished_jobs_and_of_schedules_that_may_fire_again_are_needed(store: Store) -> None:
    def upload(letter: str) -> JobSpec:
        return JobSpec(("true",), upload=letter * 64)

    def a_schedule(letter: str, state: ScheduleState) -> Schedule:
        return Schedule(
            id=0,
            name=letter,
            user="ann",
            project="default",
            state=state,
            timing="@daily",
            zone="UTC",
            request=JobRequest(upload(letter)),
            created_at=NOW,
        )

    jobs = [
        a_job(1, spec=upload("a"), state=JobState.RUNNING),
        a_job(2, spec=upload("b"), state=JobState.COMPLETED, ended_at=NOW),
    ]
    schedules = [
        a_schedule("c", ScheduleState.ACTIVE),
        a_schedule("d", ScheduleState.PAUSED),
        a_schedule("e", ScheduleState.FINISHED),
    ]
    store.write(lambda tx: job_writes.add_jobs(tx, jobs))
    for schedule in schedules:
        store.write(lambda tx, schedule=schedule: add_schedule(tx, schedule))
    with store.read() as conn:
        assert list_needed_uploads(conn) == {"a" * 64, "c" * 64, "d" * 64}
