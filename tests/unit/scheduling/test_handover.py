"""What is handed to an engine that queues by itself."""

from dataclasses import replace
from datetime import UTC, datetime

from heliostat.models import Job, JobSpec, JobState, Resources
from heliostat.scheduling.handover import to_hand_over

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def job(number: int, **fields: object) -> Job:
    made = Job(number, "batch", "x", JobState.PENDING, "ann", "ann", "p", Resources(), JobSpec(), NOW)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_everything_that_waits_is_handed_over_in_order() -> None:
    jobs = [job(3), job(1), job(2, state=JobState.HELD), job(4, state=JobState.RUNNING), job(5, handed_over=True)]
    assert [one.id for one in to_hand_over(jobs)] == [1, 3]


def test_who_is_delayed_waits_a_little_longer() -> None:
    assert [one.id for one in to_hand_over([job(1), job(2)], delayed={1})] == [2]


def test_of_an_array_no_more_than_its_limit_is_in_hand() -> None:
    array = {"array_id": 7, "array_limit": 3}
    jobs = [job(1, state=JobState.RUNNING, **array), job(2, handed_over=True, **array)]
    jobs += [job(number, **array) for number in (3, 4, 5)]
    assert [one.id for one in to_hand_over([*jobs, job(6)])] == [3, 6]


def test_an_engine_that_limits_arrays_gets_all_of_one_it_has_nothing_of() -> None:
    whole = [job(number, array_id=7, array_limit=2) for number in range(1, 6)]
    assert [one.id for one in to_hand_over(whole, limits_arrays=True)] == [1, 2, 3, 4, 5]
    rest = [replace(whole[0], handed_over=True), *whole[1:]]
    assert [one.id for one in to_hand_over(rest, limits_arrays=True)] == [2]


def test_the_next_of_an_array_follows_in_the_round_in_which_one_ends() -> None:
    jobs = [
        job(1, array_id=7, array_limit=1, attempt=1, state=JobState.RUNNING),
        job(2, array_id=7, array_limit=1),
    ]
    assert to_hand_over(jobs) == []
    assert [one.id for one in to_hand_over(jobs, ended={"1.1"})] == [2]
