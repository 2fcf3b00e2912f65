"""Dispatch to engines with their own queue."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.models import Dependency, DependencyCondition, Job, JobSpec, JobState, Resources
from heliostat.scheduling.dispatch import select_jobs_to_dispatch

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, **fields: object) -> Job:
    made = Job(number, "batch", "x", JobState.PENDING, "ann", "ann", "p", Resources(), JobSpec(), NOW)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_all_pending_jobs_are_dispatched_in_order() -> None:
    jobs = [job(3), job(1), job(2, state=JobState.HELD), job(4, state=JobState.RUNNING), job(5, dispatched=True)]
    assert [one.id for one in select_jobs_to_dispatch(jobs, NOW)] == [1, 3]


def test_a_delayed_job_is_not_dispatched() -> None:
    assert [one.id for one in select_jobs_to_dispatch([job(1), job(2)], NOW, delayed={1})] == [2]


def test_no_more_jobs_of_an_array_than_its_limit_are_dispatched() -> None:
    array = {"array_id": 7, "array_limit": 3}
    jobs = [job(1, state=JobState.RUNNING, **array), job(2, dispatched=True, **array)]
    jobs += [job(number, **array) for number in (3, 4, 5)]
    assert [one.id for one in select_jobs_to_dispatch([*jobs, job(6)], NOW)] == [3, 6]


def test_an_engine_that_limits_arrays_gets_a_new_array_as_a_whole() -> None:
    whole = [job(number, array_id=7, array_limit=2) for number in range(1, 6)]
    assert [one.id for one in select_jobs_to_dispatch(whole, NOW, whole_arrays=True)] == [1, 2, 3, 4, 5]
    rest = [replace(whole[0], dispatched=True), *whole[1:]]
    assert [one.id for one in select_jobs_to_dispatch(rest, NOW, whole_arrays=True)] == [2]


def test_the_next_job_of_an_array_is_dispatched_when_one_ends() -> None:
    jobs = [
        job(1, array_id=7, array_limit=1, attempt=1, state=JobState.RUNNING),
        job(2, array_id=7, array_limit=1),
    ]
    assert select_jobs_to_dispatch(jobs, NOW) == []
    assert [one.id for one in select_jobs_to_dispatch(jobs, NOW, ended={"1.1"})] == [2]


def child(number: int, *parents: int, rule: DependencyCondition = DependencyCondition.OK, **fields: object) -> Job:
    after = tuple(Dependency(parent, rule) for parent in parents)
    return job(number, after=after, parents_left=len(parents), **fields)


@pytest.mark.parametrize("rule", list(DependencyCondition))
@pytest.mark.parametrize("state", [JobState.HELD, JobState.PENDING, JobState.RUNNING])
def test_a_job_that_waits_for_a_parent_is_not_dispatched(state: JobState, rule: DependencyCondition) -> None:
    parent = job(1, state=state, dispatched=state is JobState.PENDING)
    assert select_jobs_to_dispatch([parent, child(2, 1, rule=rule), child(3, 2)], NOW) == []


def test_a_job_is_dispatched_after_its_parents_have_ended() -> None:
    ready = replace(child(2, 1), parents_left=0)
    assert select_jobs_to_dispatch([ready, child(3, 2)], NOW) == [ready]


def test_array_elements_are_dispatched_when_their_own_parents_have_ended() -> None:
    elements = [child(number, number - 10, array_id=7) for number in (11, 12, 13)]
    ready = [replace(one, parents_left=0) for one in elements[:2]]
    assert select_jobs_to_dispatch([*ready, elements[2]], NOW, whole_arrays=True) == ready


def test_a_job_is_not_dispatched_before_its_begin_time() -> None:
    later = job(1, begin_at=NOW + timedelta(hours=1))
    assert select_jobs_to_dispatch([later], NOW) == []
    assert select_jobs_to_dispatch([later], NOW + timedelta(hours=1)) == [later]
