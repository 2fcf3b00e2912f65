"""Lists of jobs are right in every order and under every filter, whichever index answers."""

import random
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest

from heliostat.models import TERMINAL_STATES, Job, JobSpec, JobState, Resources, Role, User
from heliostat.store import accounts
from heliostat.store.database import Store, Transaction
from heliostat.store.history import add_finished_jobs
from heliostat.store.jobs import SORT_COLUMNS, JobFilter, JobListPage, JobSearch, count_by_state, list_jobs_page
from unit.auth.stand_ins import new_store

START = datetime(2026, 1, 1, tzinfo=UTC)
FILTERS = [
    JobFilter(),
    JobFilter(states=TERMINAL_STATES),
    JobFilter(states=frozenset(JobState) - TERMINAL_STATES),
    JobFilter(states={JobState.FAILED, JobState.PENDING}),
    JobFilter(user="ann"),
    JobFilter(project="vision"),
    JobFilter(project="vision", user="bob", states={JobState.COMPLETED}),
    JobFilter(search=JobSearch("train")),
    JobFilter(search=JobSearch("7")),
    JobFilter(search=JobSearch("train", "ann", ("speech",))),
    JobFilter(search=JobSearch("%_")),
    JobFilter(node="n1", project="vision"),
    JobFilter(newest_replicas=True),
    JobFilter(newest_replicas=True, user="ann", states={JobState.FAILED}),
]


def _job(number: int, rng: random.Random) -> Job:
    state = rng.choice([*sorted(TERMINAL_STATES), JobState.PENDING, JobState.RUNNING])
    at = START + timedelta(hours=number)
    return Job(
        id=number,
        kind=rng.choice(["batch", "service"]),
        name=rng.choice(["train", "Train-7", "eval", "a%_b"]),
        state=state,
        user=rng.choice(["ann", "bob"]),
        unix_user="nobody",
        project=rng.choice(["vision", "speech"]),
        resources=Resources(1, 1024, rng.choice([0, 1, 1, 4]), None),
        spec=JobSpec(("true",)),
        submitted_at=at,
        attempt=1,
        node=rng.choice(["n1", "n2"]),
        started_at=at,
        ended_at=at + timedelta(hours=rng.randrange(50)) if state in TERMINAL_STATES else None,
    )


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    rng = random.Random(4)
    return [_job(number, rng) for number in range(1, 121)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, jobs: list[Job]) -> Iterator[Store]:
    def fill(tx: Transaction) -> None:
        for project in ("vision", "speech"):
            accounts.ensure_project(tx, project, "research")
        for name in ("ann", "bob"):
            accounts.add_user(tx, User(name, Role.USER, name, True, START))
        add_finished_jobs(tx, jobs)

    folder: Path = tmp_path_factory.mktemp("lists")
    with new_store(folder) as store:
        store.write(fill)
        yield store


def _fits(job: Job, wanted: JobFilter, jobs: list[Job]) -> bool:
    search = wanted.search
    return (
        not (wanted.newest_replicas and _is_older_replica(job, jobs))
        and (wanted.states is None or job.state in wanted.states)
        and wanted.user in (None, job.user)
        and wanted.project in (None, job.project)
        and wanted.node in (None, job.node)
        and (search is None or _is_found(job, search))
    )


def _is_older_replica(job: Job, jobs: list[Job]) -> bool:
    return any(
        (other.kind, other.user, other.name) == ("service", job.user, job.name)
        and other.ended_at is not None
        and other.id > job.id
        for other in jobs
        if job.kind == "service" and job.ended_at is not None
    )


def _is_found(job: Job, search: JobSearch) -> bool:
    may_know = search.user is None or job.user == search.user or job.project in search.projects
    is_named = search.text.lower() in job.name.lower() and may_know
    return is_named or (search.text.isdecimal() and job.id == int(search.text))


def _key(job: Job, sort: str) -> tuple[object, ...]:
    return (job.resources.gpus if sort == "gpus" else getattr(job, sort), job.id)


@pytest.mark.parametrize("wanted", FILTERS, ids=range(len(FILTERS)))
def test_every_order_and_page_is_as_sorted_by_hand(store: Store, jobs: list[Job], wanted: JobFilter) -> None:
    with store.read() as conn:
        for sort, descending, offset in product(SORT_COLUMNS, (False, True), (0, 7)):
            fitting = [job for job in jobs if _fits(job, wanted, jobs) and (sort != "ended_at" or job.ended_at)]
            fitting.sort(key=lambda job: _key(job, sort), reverse=descending)  # type: ignore[arg-type, return-value]
            found = list_jobs_page(conn, wanted, JobListPage(sort, descending, offset, 10))
            assert [job.id for job in found] == [job.id for job in fitting[offset : offset + 10]], (
                sort,
                descending,
            )


@pytest.mark.parametrize("wanted", FILTERS, ids=range(len(FILTERS)))
def test_counts_are_as_counted_by_hand(store: Store, jobs: list[Job], wanted: JobFilter) -> None:
    everything = replace(wanted, states=None)
    with store.read() as conn:
        counts = count_by_state(conn, everything)
    fitting = [job.state for job in jobs if _fits(job, everything, jobs)]
    assert counts == {state: fitting.count(state) for state in set(fitting)}
