"""Each move is guarded: by the states' own rules, and by the number of the attempt it speaks of."""

from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from heliostat.models import TERMINAL_STATES, JobState, may_transition
from heliostat.store import job_writes
from heliostat.store import jobs as stored
from heliostat.store.database import Store
from support.hypothesis_examples import example_count
from unit.store.made_up import NOW, a_job


def new_job(store: Store, state: JobState = JobState.PENDING, attempt: int = 0) -> int:
    def add(tx):  # type: ignore[no-untyped-def]
        number = tx.ids.allocate("jobs")[0]
        job_writes.add_jobs(tx, [a_job(number, state=state, attempt=attempt)])
        return number

    number: int = store.write(add)
    return number


def move(store: Store, job_id: int, to: JobState, attempt: int | None = None, **values: object) -> bool:
    wish = job_writes.JobTransition(job_id, to, "test", NOW, attempt, values)
    return store.write(lambda tx: job_writes.apply_transitions(tx, [wish])) == [wish]


def test_a_late_word_about_an_attempt_does_not_release_a_job_that_was_held_meanwhile(store: Store) -> None:
    number = new_job(store, JobState.HELD, attempt=1)
    assert not move(store, number, JobState.PENDING, attempt=1)
    assert not move(store, number, JobState.CANCELLED, attempt=1)
    assert state_of(store, number) is JobState.HELD
    assert move(store, number, JobState.PENDING), "somebody releases it"


def state_of(store: Store, job_id: int) -> JobState:
    with store.read() as conn:
        job = stored.get_job(conn, job_id)
    assert job
    return job.state


@settings(
    max_examples=example_count(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.tuples(st.sampled_from(JobState), st.sampled_from([None, 0, 1])), max_size=12))
def test_only_allowed_moves_happen_and_each_is_told_once(
    store: Store, wishes: list[tuple[JobState, int | None]]
) -> None:
    job_id = new_job(store)
    expected = JobState.PENDING
    happened = [expected]
    for to, attempt in wishes:
        is_late = expected is JobState.HELD and attempt is not None  # a word about an attempt releases no held job
        allowed = may_transition(expected, to) and attempt in (None, 0) and not is_late
        assert move(store, job_id, to, attempt) == allowed
        if allowed:
            expected = to
            happened.append(to)
        assert state_of(store, job_id) == expected
    with store.read() as conn:
        events = stored.list_events(conn, 0, 1000, job_id)
    assert [event.state for event in events] == happened


@pytest.mark.parametrize("end", sorted(TERMINAL_STATES))
def test_nothing_moves_a_job_that_is_over(store: Store, end: JobState) -> None:
    job_id = new_job(store, end)
    assert not any(move(store, job_id, to) for to in JobState)
    assert state_of(store, job_id) is end


def test_a_late_word_of_an_old_attempt_changes_nothing(store: Store) -> None:
    job_id = new_job(store, JobState.RUNNING, attempt=2)
    assert not move(store, job_id, JobState.FAILED, attempt=1, exit_code=1)
    assert state_of(store, job_id) is JobState.RUNNING
    assert move(store, job_id, JobState.COMPLETED, attempt=2, exit_code=0)


def test_two_moves_of_one_job_in_one_commit_see_each_other(store: Store) -> None:
    job_id = new_job(store)
    start = job_writes.JobTransition(job_id, JobState.STARTING, "starting", NOW, 0, {"attempt": 1})
    late = job_writes.JobTransition(job_id, JobState.CANCELLED, "ended", NOW, 0)
    run = job_writes.JobTransition(job_id, JobState.RUNNING, "running", NOW + timedelta(seconds=1), 1)
    assert store.write(lambda tx: job_writes.apply_transitions(tx, [start, late, run])) == [start, run]


def test_a_job_that_starts_and_ends_in_one_commit_is_written_once_and_told_twice(store: Store) -> None:
    job_id, told = new_job(store, JobState.STARTING, attempt=1), list[tuple[int, JobState]]()
    store.on_commit(
        lambda changes: told.extend((number, values["state"]) for number, values in changes.changed_jobs)
    )
    run = job_writes.JobTransition(job_id, JobState.RUNNING, "running", NOW, 1, {"started_at": NOW})
    end = job_writes.JobTransition(job_id, JobState.COMPLETED, "ended", NOW, 1, {"ended_at": NOW, "exit_code": 0})
    assert store.write(lambda tx: job_writes.apply_transitions(tx, [run, end])) == [run, end]
    with store.read() as conn:
        job, events = stored.get_job(conn, job_id), stored.list_events(conn, 0, 1000, job_id)
    assert job
    assert (job.state, job.started_at, job.ended_at, job.exit_code) == (JobState.COMPLETED, NOW, NOW, 0)
    assert [event.kind for event in events] == ["submitted", "running", "ended"]
    assert told == [(job_id, JobState.COMPLETED)]


def test_a_job_that_is_not_there_does_not_move(store: Store) -> None:
    assert not move(store, 10**9, JobState.CANCELLED)


@pytest.mark.parametrize("to", [JobState.HELD, JobState.CANCELLED, JobState.STARTING])
def test_whoever_moves_is_no_longer_in_an_engines_queue(store: Store, to: JobState) -> None:
    job_id = new_job(store, attempt=1)
    store.write(lambda tx: job_writes.update_job(tx, job_id, {"dispatched": True}))
    assert move(store, job_id, to, 1)
    with store.read() as conn:
        job = stored.get_job(conn, job_id)
    assert job is not None
    assert not job.dispatched
