"""Jobs that wait for parents or a begin time: they block no other job, and this wait does not count."""

from dataclasses import replace
from datetime import timedelta

from heliostat.models import Dependency, DependencyCondition, Job, JobState, Resources
from heliostat.scheduling.dependencies import explain_ineligible
from heliostat.scheduling.dispatch import select_jobs_to_dispatch
from heliostat.scheduling.forecast import forecast_starts
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job

HOUR = timedelta(hours=1)
WHOLE = Resources(8, 100)


def a_child(
    number: int, *parents: int, rule: DependencyCondition = DependencyCondition.OK, **fields: object
) -> Job:
    after = tuple(Dependency(parent, rule) for parent in parents)
    return a_job(number, after=after, parents_left=len(after), **fields)


def started(board: object, at: object = NOW) -> list[int]:
    return [start.job.id for start in a_plan(board, at).starts]  # type: ignore[arg-type]


def test_a_child_does_not_start_before_its_parents_have_ended() -> None:
    child = a_child(2, 1)
    board = a_queue_state((a_node(),), [a_running_job(1, "a"), child])
    assert started(board) == []
    board.update_job(replace(child, parents_left=0, waits_since=NOW + HOUR), NOW + HOUR)
    assert started(board, NOW + HOUR) == [2]


def test_a_job_does_not_start_before_its_begin_time_and_the_plan_wakes_up_then() -> None:
    board = a_queue_state((a_node(),), [a_job(1, begin_at=NOW + HOUR)])
    made = a_plan(board)
    assert (made.starts, made.wake_at) == ((), NOW + HOUR)
    assert started(board.copy(), NOW + HOUR) == [1]
    assert started(board, NOW + HOUR) == [1]


def test_a_job_that_is_cancelled_before_its_begin_time_is_forgotten() -> None:
    job = a_job(1, begin_at=NOW + HOUR)
    board = a_queue_state((a_node(),), [job])
    board.update_job(replace(job, state=JobState.CANCELLED, ended_at=NOW), NOW)
    assert started(board, NOW + 2 * HOUR) == []
    assert board.next_begin_at() is None


def test_a_job_that_is_held_and_released_before_its_begin_time_is_queued_once() -> None:
    job = a_job(1, begin_at=NOW + HOUR)
    board = a_queue_state((a_node(),), [job])
    board.update_job(replace(job, state=JobState.HELD), NOW)
    board.update_job(job, NOW)
    assert started(board, NOW + HOUR) == [1]
    assert board.eligible_count == 1


def test_waiting_for_a_parent_or_a_begin_time_does_not_count_as_waiting() -> None:
    early = NOW - 10 * HOUR
    child = a_child(1, 9, submitted_at=early)
    assert child.queue_wait_seconds(NOW) == 0
    eligible = replace(child, parents_left=0, waits_since=NOW - HOUR)
    assert eligible.queue_wait_seconds(NOW) == HOUR.total_seconds()
    assert a_job(2, submitted_at=early, begin_at=NOW - HOUR).queue_wait_seconds(NOW) == HOUR.total_seconds()
    assert a_job(3, submitted_at=early, begin_at=NOW + HOUR).queue_wait_seconds(NOW) == 0


def test_a_job_that_waited_in_the_queue_is_ahead_of_one_that_waited_for_a_parent() -> None:
    late = a_child(1, 9, resources=WHOLE, submitted_at=NOW - 10 * HOUR)
    late = replace(late, parents_left=0, waits_since=NOW)
    board = a_queue_state((a_node(),), [late, a_job(2, WHOLE, submitted_at=NOW - HOUR)])
    assert started(board) == [2]


def test_ineligible_jobs_do_not_cause_preemption() -> None:
    jobs = [a_child(1, 9), a_job(2, begin_at=NOW + HOUR), a_job(3)]
    board = a_queue_state((a_node(cpus=0),), jobs)
    assert board.eligible_count == 1
    assert board.snapshot(NOW).pending["job"].tolist() == [3]


def test_an_engine_with_its_own_queue_gets_jobs_when_they_become_eligible() -> None:
    jobs = [a_child(1, 9), a_job(2, begin_at=NOW + HOUR), a_job(3)]
    assert [job.id for job in select_jobs_to_dispatch(jobs, now=NOW)] == [3]
    assert [job.id for job in select_jobs_to_dispatch(jobs, now=NOW + HOUR)] == [2, 3]


def test_a_child_is_forecast_after_the_end_of_its_parents() -> None:
    parent = a_running_job(1, "a", time_limit_seconds=3600)
    jobs = [
        parent,
        a_child(2, 1, time_limit_seconds=600),
        a_child(3, 2, 1),
        a_child(4, 2, rule=DependencyCondition.FAILED),
    ]
    found = forecast_starts(a_queue_state((a_node(),), jobs), NOW)
    assert found[2].limits_at == NOW + HOUR
    assert found[3].limits_at == NOW + HOUR + timedelta(minutes=10)
    assert 4 not in found


def test_a_job_with_a_begin_time_is_forecast_for_that_time() -> None:
    found = forecast_starts(a_queue_state((a_node(),), [a_job(1, begin_at=NOW + HOUR)]), NOW)
    assert found[1].earliest_at == found[1].latest_at == NOW + HOUR


def test_the_reason_names_the_parents_and_their_states() -> None:
    running = a_running_job(1, "a", time_limit_seconds=3 * 3600)
    jobs = {job.id: job for job in (running, a_job(2), a_job(3), a_job(4), a_job(5))}
    child = a_child(9, 1, 2)
    assert (
        explain_ineligible(child, jobs, NOW) == "waits for job 1 (running, at most 3 h left) and job 2 (pending)"
    )
    assert explain_ineligible(a_child(9, 2, 3, 4, 5, 7), jobs, NOW) == (
        "waits for job 2 (pending), job 3 (pending), job 4 (pending) and 1 more"
    )
    assert explain_ineligible(a_child(9, 2, begin_at=NOW + HOUR), jobs, NOW) == (
        "waits for job 2 (pending), and for its begin time, 2026-03-01 13:00 UTC"
    )


def test_the_reason_names_the_build_of_its_environment() -> None:
    build = a_running_job(1, "a", kind="build", time_limit_seconds=7200)
    child = a_child(2, 1, rule=DependencyCondition.BUILT)
    assert explain_ineligible(child, {1: build}, NOW) == "waits for job 1, which builds its environment (running)"


def test_the_reason_names_the_begin_time() -> None:
    assert (
        explain_ineligible(a_job(1, begin_at=NOW + HOUR), {}, NOW)
        == "waits for its begin time, 2026-03-01 13:00 UTC"
    )
    assert explain_ineligible(a_job(1, begin_at=NOW), {}, NOW) is None
