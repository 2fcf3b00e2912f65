"""Short jobs that are alike stand ready behind those that run, whatever happens to them meanwhile."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random

import pytest

from chaos.stage import NODE, LiningEngine, Stage
from heliostat.models import Cause, JobId, JobState, Resources, Started
from heliostat.scheduling import lanes

HALF = Resources(NODE.cpus // 2, 16)
ENOUGH = 20  # ends after which it is known that they are short


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "home", engine=LiningEngine)
    yield stage
    stage.close()


def engine_of(stage: Stage) -> LiningEngine:
    assert isinstance(stage.engine, LiningEngine)
    return stage.engine


def submit(stage: Stage, count: int) -> list[JobId]:
    numbers = [stage.submit(resources=HALF) for _ in range(count)]
    stage.settle()
    return numbers


def end_one(stage: Stage, cause: Cause = Cause.EXITED, *, settle: bool = True, seconds: float = 0.0) -> JobId:
    """Of those that run the first, after so many seconds."""
    engine = engine_of(stage)
    attempt = engine.running()[0].attempt
    if stage.job(attempt.job.id).state is JobState.STARTING:
        engine.tell(Started(attempt.id, stage.clock()))
    stage.clock.jump(seconds=seconds)
    end, begun = engine.end(attempt.id, cause, 0), engine.pass_on(attempt.id)
    engine.tell(*([begun] if begun else []), end)
    if settle:
        stage.settle()
    return attempt.job.id


def end_all(stage: Stage) -> None:
    while engine_of(stage).running():
        end_one(stage)


def with_lanes(stage: Stage, count: int) -> list[JobId]:
    """That many are left to run; some of them stand ready."""
    numbers = submit(stage, ENOUGH + count)
    for _ in range(ENOUGH):
        end_one(stage)
    assert engine_of(stage).lined_up
    return numbers[ENOUGH:]


def states(stage: Stage, numbers: list[JobId]) -> set[JobState]:
    return {stage.job(number).state for number in numbers}


def test_they_run_once_each_in_turn_and_never_more_at_once_than_there_are_places(stage: Stage) -> None:
    numbers = submit(stage, 60)
    ended = [end_one(stage, settle=number % 3 == 0) for number in range(50) if engine_of(stage).running()]
    stage.settle()
    while engine_of(stage).running():
        ended.append(end_one(stage))
    assert sorted(ended) == numbers
    assert engine_of(stage).most_at_once == 2
    assert states(stage, numbers) == {JobState.COMPLETED}
    assert all(len(stage.attempts(number)) == 1 for number in numbers)
    assert all(stage.job(number).node == NODE.name and stage.job(number).started_at for number in numbers)


def test_one_who_stands_ready_is_pending_and_says_that_it_is_next(stage: Stage) -> None:
    with_lanes(stage, 20)
    job = stage.job(next(iter(engine_of(stage).lined_up.values())).job.id)
    assert job.state is JobState.PENDING
    assert stage.controller.reason(job) == "is the next to start, in the place of one like it"


@pytest.mark.parametrize(("verb", "state"), [("cancel", JobState.CANCELLED), ("hold", JobState.HELD)])
def test_one_who_was_cancelled_or_held_while_it_stood_ready_does_not_start(
    stage: Stage, verb: str, state: JobState
) -> None:
    numbers = with_lanes(stage, 20)
    chosen = [attempt.job.id for attempt in engine_of(stage).lined_up.values()][1]
    stage.ask(verb, chosen)
    stage.settle()
    end_all(stage)
    assert stage.job(chosen).state is state
    assert states(stage, [number for number in numbers if number != chosen]) == {JobState.COMPLETED}


def test_one_who_runs_long_gives_back_those_behind_it(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = with_lanes(stage, 20)
    monkeypatch.setattr(lanes, "PATIENCE_SECONDS", 0.0)
    stage.controller._inbox.nudge()
    stage.settle()
    assert engine_of(stage).lined_up == {}
    end_all(stage)
    assert states(stage, numbers) == {JobState.COMPLETED}


def test_somebody_else_who_comes_does_not_wait_for_those_who_stand_ready(stage: Stage) -> None:
    with_lanes(stage, 20)
    other = stage.submit(resources=Resources(1, 16), priority=10)
    stage.settle()
    assert engine_of(stage).lined_up == {}
    end_one(stage)
    assert stage.job(other).state is JobState.STARTING


def test_nobody_stands_ready_on_a_node_that_is_down(stage: Stage) -> None:
    numbers = with_lanes(stage, 20)
    stage.engine.open(False)
    stage.settle()
    assert engine_of(stage).lined_up == {}
    end_all(stage)
    assert JobState.PENDING in states(stage, numbers)
    stage.engine.open(True)
    stage.settle()
    end_all(stage)
    assert states(stage, numbers) == {JobState.COMPLETED}


def test_nobody_stands_ready_behind_jobs_that_take_their_time(stage: Stage) -> None:
    submit(stage, 40)
    for _ in range(ENOUGH):
        end_one(stage, seconds=1)
    assert engine_of(stage).lined_up == {}


@pytest.mark.parametrize("seed", range(4))
def test_whatever_dies_or_is_full_each_runs_once(stage: Stage, seed: int) -> None:
    random = Random(seed)
    numbers = submit(stage, 120)
    while engine_of(stage).running():
        choice, settle = random.random(), random.random() < 0.5
        if choice < 0.03:
            stage.restart()
        elif choice < 0.06:
            stage.fail_next_write()
            settle = True
        elif choice < 0.09:
            numbers += submit(stage, 3)
        cause = Cause.NOT_STARTED if random.random() < 0.03 else Cause.EXITED
        end_one(stage, cause, settle=settle)
        if not engine_of(stage).running():
            stage.settle()
    assert states(stage, numbers) == {JobState.COMPLETED}
    assert engine_of(stage).most_at_once == 2
    done = [one.ended for one in engine_of(stage).truths.values() if one.ended and one.ended.cause is Cause.EXITED]
    assert len(done) == len(numbers)


def test_usage_is_charged_for_those_who_started_and_ended_between_two_looks(stage: Stage) -> None:
    with_lanes(stage, 20)
    for _ in range(6):
        end_one(stage, settle=False)
    stage.settle()
    jobs = [job for job in stage.jobs() if job.state is JobState.COMPLETED]
    assert all(job.started_at and job.ended_at and job.ended_at - job.started_at >= timedelta(0) for job in jobs)
