"""Many jobs that are written or read at once: each as it is, and none besides."""

from dataclasses import replace
from datetime import timedelta

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from heliostat.models import Attempt, Job, JobState
from heliostat.store import job_writes, schema
from heliostat.store import jobs as stored
from heliostat.store.database import Store, Transaction
from unit.store.made_up import NOW, a_job


def added(store: Store, names: list[str]) -> list[Job]:
    def add(tx: Transaction) -> list[Job]:
        numbers = tx.ids.allocate("jobs", len(names))
        jobs = [replace(a_job(number), name=name) for number, name in zip(numbers, names, strict=True)]
        job_writes.add_jobs(tx, jobs)
        return jobs

    return store.write(add)


def found(store: Store, jobs: list[Job]) -> list[Job]:
    with store.read() as conn:
        there = stored.get_jobs(conn, [job.id for job in jobs])
    return [there[job.id] for job in jobs]


names = st.lists(st.sampled_from(["same", "same", "other"]), min_size=1, max_size=8)
on_one_store = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@on_one_store
@given(names)
def test_jobs_and_their_events_are_kept_as_they_were_given(store: Store, names: list[str]) -> None:
    jobs = added(store, names)
    assert found(store, jobs) == jobs
    with store.read() as conn:
        events = schema.events
        told = conn.execute(select(events.c.job_id, events.c.kind).where(events.c.job_id >= jobs[0].id)).all()
    assert [tuple(row) for row in told] == [(job.id, "submitted") for job in jobs]


@on_one_store
@given(st.lists(st.sampled_from([None, 1, 1, 2]), min_size=1, max_size=8))
def test_only_those_change_who_were_to_and_each_to_its_own(store: Store, priorities: list[int | None]) -> None:
    jobs = added(store, ["same"] * len(priorities))
    wanted = {job.id: priority for job, priority in zip(jobs, priorities, strict=True) if priority}
    store.write(
        lambda tx: job_writes.update_jobs(tx, [(number, {"priority": value}) for number, value in wanted.items()])
    )
    assert found(store, jobs) == [replace(job, priority=wanted.get(job.id, job.priority)) for job in jobs]


@on_one_store
@given(st.lists(st.sampled_from([0, 1, 1, 2]), min_size=1, max_size=8))
def test_of_attempts_only_the_one_of_that_number_changes(store: Store, numbers: list[int]) -> None:
    jobs = added(store, ["same"] * len(numbers))
    both = [replace(job, attempt=number) for number in (1, 2) for job in jobs]
    store.write(lambda tx: job_writes.add_attempts(tx, [Attempt(job.attempt_id, job, "a") for job in both], NOW))
    ended = {"state": JobState.COMPLETED, "ended_at": NOW + timedelta(seconds=1)}
    over = [((job.id, number), ended) for job, number in zip(jobs, numbers, strict=True) if number]
    store.write(lambda tx: job_writes.update_attempts(tx, over))
    with store.read() as conn:
        seen = {(job.id, one.number): one.state for job in jobs for one in stored.list_attempts(conn, job.id)}
    expected = {(job.id, job.attempt): JobState.STARTING for job in both}
    assert seen == expected | {key: JobState.COMPLETED for key, _ in over}


def test_more_jobs_than_one_statement_takes_are_read_and_moved(store: Store) -> None:
    jobs = added(store, ["same"] * 1201)
    wanted = [job.id for job in jobs[1:]]
    with store.read() as conn:
        assert set(stored.get_jobs(conn, [*wanted, *wanted, 10**9])) == set(wanted)
        assert set(stored.get_owners_and_states(conn, wanted)) == set(wanted)
    held = [job_writes.JobTransition(number, JobState.HELD, "held", NOW) for number in wanted]
    assert len(store.write(lambda tx: job_writes.apply_transitions(tx, held))) == len(wanted)
    with store.read() as conn:
        left = stored.get_owners_and_states(conn, [job.id for job in jobs])
    assert [one.id for one in left.values() if one.state is not JobState.HELD] == [jobs[0].id]
