"""Children learn of their parents' ends in the transaction that records them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import delete

from heliostat.models import TERMINAL_STATES, Dependency, DependencyCondition, Job, JobState
from heliostat.store import dependencies, job_writes, schema
from heliostat.store import jobs as stored
from heliostat.store.database import Store, Transaction
from heliostat.store.job_writes import JobTransition
from support.hypothesis_examples import example_count
from unit.store.made_up import NOW, a_job

LATER = NOW + timedelta(hours=1)


@pytest.fixture(autouse=True)
def _empty(store: Store) -> None:
    store.write(_clear)


def _clear(tx: Transaction) -> None:
    for table in (schema.dependencies, schema.events, schema.jobs):
        tx.conn.execute(delete(table))


def a_child(
    number: int, *parents: int, rule: DependencyCondition = DependencyCondition.OK, **fields: object
) -> Job:
    after = tuple(Dependency(parent, rule) for parent in parents)
    return a_job(number, after=after, parents_left=len(after), **fields)


def add(store: Store, *jobs: Job) -> None:
    def change(tx: Transaction) -> None:
        job_writes.add_jobs(tx, jobs)
        dependencies.add_dependencies(tx, jobs, set())

    store.write(change)


def end(store: Store, number: int, state: JobState) -> None:
    """A job that waits can only be cancelled; others start and run first."""

    def change(tx: Transaction) -> None:
        steps = [] if state is JobState.CANCELLED else [JobState.STARTING, JobState.RUNNING]
        for step in steps:
            job_writes.apply_transitions(tx, [JobTransition(number, step, step.value, LATER)])
        job_writes.apply_transitions(tx, [JobTransition(number, state, "ended", LATER, None, {"ended_at": LATER})])

    store.write(change)


def database_steps(store: Store, work: Callable[[], None]) -> int:
    """How many instructions SQLite carried out for this, in thousands at least."""
    counted = [0]

    def count() -> None:
        counted[0] += 1000

    def watch(tx: Transaction, handler: Callable[[], None] | None) -> None:
        tx.conn.connection.driver_connection.set_progress_handler(handler, 1000)  # type: ignore[union-attr]

    store.write(lambda tx: watch(tx, count))
    work()
    store.write(lambda tx: watch(tx, None))
    return counted[0]


def job(store: Store, number: int) -> Job:
    with store.read() as conn:
        found = stored.get_job(conn, number)
    assert found is not None
    return found


def kinds(store: Store, number: int) -> list[str]:
    with store.read() as conn:
        return [event.kind for event in stored.list_events(conn, 0, 100, number)]


def test_what_a_job_waits_for_is_kept_as_it_was_asked_for(store: Store) -> None:
    child = a_child(2, 1, rule=DependencyCondition.ANY, begin_at=LATER)
    add(store, a_job(1), child)
    assert job(store, 2) == child
    with store.read() as conn:
        assert dependencies.list_children(conn, 1, 10) == [(2, DependencyCondition.ANY)]
        assert dependencies.count_children(conn, 1) == 1


def test_a_child_takes_its_place_in_line_when_its_last_parent_is_over(store: Store) -> None:
    add(store, a_job(1), a_job(2), a_child(3, 1, 2))
    end(store, 1, JobState.COMPLETED)
    assert (job(store, 3).parents_left, job(store, 3).waits_since) == (1, None)
    end(store, 2, JobState.COMPLETED)
    assert (job(store, 3).parents_left, job(store, 3).waits_since) == (0, LATER)
    assert kinds(store, 3) == ["submitted", "parents_over"]


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED, JobState.TIMED_OUT, JobState.LOST])
def test_a_child_whose_parent_does_not_complete_is_cancelled_and_says_why(store: Store, state: JobState) -> None:
    add(store, a_job(1), a_child(2, 1), a_child(3, 2), a_child(4, 2, rule=DependencyCondition.ANY))
    end(store, 1, state)
    assert job(store, 2).state is JobState.CANCELLED
    assert (job(store, 2).reason or "").startswith("job 1, on which it depends, ")
    assert job(store, 3).reason == "job 2, on which it depends, was cancelled"
    assert (job(store, 4).state, job(store, 4).parents_left) == (JobState.PENDING, 0)


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.TIMED_OUT, JobState.CANCELLED])
def test_a_job_whose_environment_cannot_be_built_fails_and_is_cancelled_with_the_build(
    store: Store, state: JobState
) -> None:
    built = DependencyCondition.BUILT
    add(store, a_job(1, kind="build"), a_child(2, 1, rule=built), a_child(3, 1, rule=built, state=JobState.HELD))
    end(store, 1, state)
    expected = JobState.CANCELLED if state is JobState.CANCELLED else JobState.FAILED
    assert [job(store, number).state for number in (2, 3)] == [expected] * 2
    assert (job(store, 2).reason or "").startswith("its environment cannot be built: job 1 ")
    assert job(store, 2).ended_at == LATER


def test_a_job_that_waits_for_a_failure_is_cancelled_when_all_went_well(store: Store) -> None:
    add(
        store,
        a_job(1),
        a_job(2),
        a_child(3, 1, rule=DependencyCondition.FAILED),
        a_child(4, 2, rule=DependencyCondition.FAILED),
    )
    end(store, 1, JobState.COMPLETED)
    end(store, 2, JobState.FAILED)
    assert job(store, 3).reason == "job 1, on which it depends, completed"
    assert (job(store, 4).state, job(store, 4).parents_left) == (JobState.PENDING, 0)


def test_a_parent_that_goes_back_to_the_queue_is_not_over(store: Store) -> None:
    add(store, a_job(1), a_child(2, 1))
    for step in (JobState.STARTING, JobState.RUNNING, JobState.PENDING):
        store.write(lambda tx, step=step: job_writes.apply_transitions(tx, [JobTransition(1, step, "x", LATER)]))  # type: ignore[misc]
    assert (job(store, 2).state, job(store, 2).parents_left) == (JobState.PENDING, 1)


def test_a_held_child_stays_held_when_its_parents_are_over(store: Store) -> None:
    add(store, a_job(1), a_child(2, 1, state=JobState.HELD))
    end(store, 1, JobState.COMPLETED)
    assert (job(store, 2).state, job(store, 2).parents_left) == (JobState.HELD, 0)


def test_a_chain_of_ten_thousand_falls_in_one_go(store: Store) -> None:
    add(store, a_job(1), *(a_child(number, number - 1) for number in range(2, 10_001)))
    steps = database_steps(store, lambda: end(store, 1, JobState.FAILED))
    with store.read() as conn:
        assert stored.count_by_state(conn, stored.JobFilter()) == {JobState.FAILED: 1, JobState.CANCELLED: 9_999}
    assert steps < 20_000_000, "the work grows with the length, not with its square"


rules = st.sampled_from(DependencyCondition)
ends = st.sampled_from(sorted(TERMINAL_STATES))


@st.composite
def families(draw: st.DrawFn) -> list[Job]:
    count = draw(st.integers(2, 9))
    found = []
    for number in range(1, count + 1):
        earlier = draw(st.sets(st.integers(1, number - 1), max_size=3)) if number > 1 else set()
        after = tuple(Dependency(parent, draw(rules)) for parent in sorted(earlier))
        found.append(a_job(number, after=after, parents_left=len(after)))
    return found


@settings(
    deadline=None, max_examples=example_count(60), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(families(), st.data())
def test_however_jobs_end_every_child_does_what_its_rules_say_and_is_told_once(
    store: Store, family: list[Job], data: st.DataObject
) -> None:
    store.write(_clear)
    add(store, *family)
    believed = {one.id: JobState.PENDING for one in family}
    for _ in family:
        ready = [one.id for one in family if _may_run(one, believed)]
        if not ready:
            break
        number, state = data.draw(st.sampled_from(ready)), data.draw(ends)
        end(store, number, state)
        believed[number] = state
        _let_fall(store, family, believed)
    for one in family:
        found = job(store, one.id)
        assert found.state is believed[one.id]
        if found.state is JobState.PENDING:
            assert found.parents_left == sum(believed[edge.parent_id] not in TERMINAL_STATES for edge in one.after)
        assert kinds(store, one.id).count("parents_over") <= 1
        assert kinds(store, one.id).count("ended") == (found.state in TERMINAL_STATES)


def _may_run(one: Job, states: dict[int, JobState]) -> bool:
    return states[one.id] not in TERMINAL_STATES and all(
        edge.condition.is_met_by(states[edge.parent_id]) for edge in one.after
    )


def _let_fall(store: Store, family: Sequence[Job], states: dict[int, JobState]) -> None:
    for one in family:  # parents come first
        possible = {
            _end_by(edge.condition, states[edge.parent_id])
            for edge in one.after
            if states[edge.parent_id] in TERMINAL_STATES and not edge.condition.is_met_by(states[edge.parent_id])
        }
        if possible and states[one.id] not in TERMINAL_STATES:  # of several, the first counts
            states[one.id] = job(store, one.id).state if len(possible) > 1 else possible.pop()


def _end_by(condition: DependencyCondition, parent: JobState) -> JobState:
    is_failed_build = condition is DependencyCondition.BUILT and parent is not JobState.CANCELLED
    return JobState.FAILED if is_failed_build else JobState.CANCELLED


def test_the_fields_of_a_child_survive_a_change_of_others(store: Store) -> None:
    add(store, a_job(1), a_child(2, 1))
    end(store, 1, JobState.COMPLETED)
    assert job(store, 2) == replace(a_child(2, 1), parents_left=0, waits_since=LATER)
