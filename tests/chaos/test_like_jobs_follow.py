"""Like jobs follow one another without a plan for each, whatever happens to them meanwhile."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest

from chaos.stage import NODE, Stage
from heliostat.models import Cause, JobId, JobState, Resources, Started
from heliostat.scheduling.plan import plan
from heliostat.workers import controller as controllers

HALF = Resources(NODE.cpus // 2, 16)


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Counts them. A line is followed for as long as the test takes: only its clock, which stands, ends that."""
    counted = Mock(side_effect=plan)
    monkeypatch.setattr(controllers, "plan", counted)
    monkeypatch.setattr(controllers, "GOOD_SECONDS", 3600.0)
    return counted


@pytest.fixture
def stage(tmp_path: Path, plans: Mock) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home")
    yield stage
    stage.close()


def submit(stage: Stage, count: int) -> list[JobId]:
    numbers = [stage.submit(resources=HALF) for _ in range(count)]
    stage.settle()
    return numbers


def running(stage: Stage) -> list[JobId]:
    return [truth.attempt.job.id for truth in stage.engine.running()]


def end_one(stage: Stage, cause: Cause = Cause.EXITED) -> JobId:
    """The oldest of those that run; its start is told only now."""
    attempt = stage.engine.running()[0].attempt
    stage.engine.tell(Started(attempt.id, stage.clock()), stage.engine.end(attempt.id, cause, 0))
    stage.settle()
    return attempt.job.id


def test_each_runs_once_in_its_turn_without_another_plan(stage: Stage, plans: Mock) -> None:
    numbers = submit(stage, 8)
    made = plans.call_count
    ended = []
    while len(numbers) - len(ended) > 2:
        assert running(stage) == numbers[len(ended) :][:2]
        ended.append(end_one(stage))
    assert plans.call_count == made
    while running(stage):
        ended.append(end_one(stage))
    assert ended == numbers
    assert {stage.job(number).state for number in numbers} == {JobState.COMPLETED}
    assert all(len(stage.attempts(number)) == 1 for number in numbers)


def test_who_comes_meanwhile_follows_without_a_plan(stage: Stage, plans: Mock) -> None:
    numbers = submit(stage, 4)
    made = plans.call_count
    numbers += submit(stage, 2)
    assert [end_one(stage) for _ in range(4)] == numbers[:4]
    assert plans.call_count == made
    assert running(stage) == numbers[4:]


def test_one_that_was_cancelled_or_held_does_not_follow(stage: Stage) -> None:
    first, second, third, fourth, fifth = submit(stage, 5)
    stage.ask("cancel", third)
    stage.ask("hold", fourth)
    assert end_one(stage) == first
    assert running(stage) == [second, fifth]


def test_nobody_follows_onto_a_node_that_is_down(stage: Stage) -> None:
    _, second, *_ = submit(stage, 5)
    stage.engine.open(False)
    end_one(stage)
    assert running(stage) == [second]


def test_after_a_crash_each_runs_once_all_the_same(stage: Stage) -> None:
    numbers = submit(stage, 6)
    end_one(stage)
    attempt = stage.engine.running()[0].attempt
    stage.engine.is_deaf = True
    stage.engine.tell(stage.engine.end(attempt.id, Cause.EXITED, 0))
    stage.settle()  # the next one is recorded, and the server dies before it starts
    stage.restart()
    while running(stage):
        end_one(stage)
    assert {stage.job(number).state for number in numbers} == {JobState.COMPLETED}
    assert len(stage.engine.truths) == len(numbers)


def test_a_full_disk_keeps_nobody_from_following_later(stage: Stage) -> None:
    numbers = submit(stage, 6)
    stage.fail_next_write()
    end_one(stage)
    while running(stage):
        end_one(stage)
    assert {stage.job(number).state for number in numbers} == {JobState.COMPLETED}
    assert len(stage.engine.truths) == len(numbers)


def test_one_that_could_not_be_started_is_tried_again(stage: Stage) -> None:
    numbers = submit(stage, 5)
    end_one(stage, Cause.NOT_STARTED)
    while running(stage):
        end_one(stage)
    assert {stage.job(number).state for number in numbers} == {JobState.COMPLETED}
    assert stage.job(numbers[0]).attempt == 2
