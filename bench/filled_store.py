"""A store full of finished jobs: what a busy group has after a year."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

from heliostat.config import Home
from heliostat.models import Job, JobSpec, JobState, Resources, Role, User
from heliostat.store import accounts
from heliostat.store.database import Store, Transaction
from heliostat.store.history import add_finished_jobs
from heliostat.store.schema_upgrade import migrate

JOB_COUNT = 100_000
_BATCH = 10_000
_ENDS = (JobState.COMPLETED,) * 8 + (JobState.FAILED, JobState.CANCELLED)


def create_filled_store(home: Path, jobs: int = JOB_COUNT) -> None:
    """Makes the home anew."""
    home.mkdir(parents=True)
    home.chmod(0o711)
    database = Home(home).database
    migrate(database)
    store = Store(database)
    try:
        store.write(_add_people)
        for first in range(0, jobs, _BATCH):
            count = min(_BATCH, jobs - first)
            store.write(lambda tx, count=count: _add_jobs(tx, count))
    finally:
        store.close()


def _add_people(tx: Transaction) -> None:
    accounts.ensure_project(tx, "vision", "research")
    for number in range(40):
        name = f"user{number:02}"
        accounts.add_user(tx, User(name, Role.USER, name, active=True, created_at=datetime.now(UTC)))


def _add_jobs(tx: Transaction, count: int) -> None:
    rng = random.Random(count)
    add_finished_jobs(tx, [_job(number, rng) for number in tx.ids.allocate("jobs", count)])


def _job(number: int, rng: random.Random) -> Job:
    submitted = datetime.now(UTC) - timedelta(seconds=(JOB_COUNT - number) * 300)
    started = submitted + timedelta(seconds=rng.expovariate(1 / 600))
    state = rng.choice(_ENDS)
    return Job(
        id=number,
        kind="batch",
        name=f"train-{number % 97}",
        state=state,
        user=f"user{rng.randrange(40):02}",
        unix_user="nobody",
        project="vision",
        resources=Resources(4, 16384, rng.choice((0, 1, 1, 2, 4)), None),
        spec=JobSpec(("python", "train.py", "--seed", str(number)), env={"RUN": str(number)}),
        submitted_at=submitted,
        attempt=1,
        node="n01",
        devices=(f"GPU-{number % 8}",),
        started_at=started,
        ended_at=started + timedelta(seconds=rng.expovariate(1 / 3600)),
        exit_code=0 if state is JobState.COMPLETED else 1,
    )
