"""The idle ladder with a clock that the test turns."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.fair_use.credit import early_return
from heliostat.fair_use.ladder import IdlePolicy, climb, is_judged, next_step, planned_steps, steps_for
from heliostat.fair_use.replay import replay_ladder
from heliostat.fair_use.utilisation import STEP_SECONDS, GpuUtilisation
from heliostat.models import Resources
from heliostat.models.fair_use import IdleState, IdleStep
from unit.services.site import a_job

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIRST = int(NOW.timestamp())
ALL = tuple(IdleStep)
POLICY = IdlePolicy(ALL)
MINUTE = timedelta(minutes=1)
STEPS = st.sets(st.sampled_from(ALL)).map(lambda chosen: tuple(step for step in ALL if step in chosen))
USE = st.lists(st.sampled_from([0.0, 2.0, 50.0, float("nan")]), min_size=1, max_size=60)


def walk(
    idle: list[bool], policy: IdlePolicy = POLICY, kept: datetime | None = None
) -> list[tuple[int, IdleStep]]:
    """The steps taken, by minute, for a job that is idle or not in each minute."""
    state, since, taken = IdleState(1, 1, kept_until=kept), None, []
    for minute, is_idle in enumerate(idle):
        now = NOW + minute * MINUTE
        since = (since or now) if is_idle else None
        state, step = climb(policy, policy.steps, state, since, now)
        if step is not None:
            taken.append((minute, step))
    return taken


def used(*percent: float) -> GpuUtilisation:
    return GpuUtilisation(FIRST, np.array([[value] for value in percent]))


def test_an_idle_job_gets_one_step_after_the_other_with_time_to_answer() -> None:
    assert walk([True] * 300) == [(30 * (n + 1), step) for n, step in enumerate(ALL)]


def test_use_begins_the_ladder_again() -> None:
    assert walk([True] * 59 + [False] + [True] * 32) == [(30, IdleStep.NOTE), (90, IdleStep.NOTE)]


def test_an_answer_gives_its_time_and_a_whole_window_after_it() -> None:
    assert walk([True] * 200, kept=NOW + 90 * MINUTE)[0] == (120, IdleStep.NOTE)


def test_use_while_no_server_ran_begins_the_ladder_again() -> None:
    state = IdleState(1, 1, IdleStep.MANAGER, NOW, NOW)
    after, step = climb(POLICY, ALL, state, NOW + 10 * MINUTE, NOW + 600 * MINUTE)
    assert (after.step, step) == (IdleStep.NOTE, IdleStep.NOTE)


@given(USE, STEPS)
def test_steps_are_taken_in_order_never_twice_and_never_early(
    percent: list[float], steps: tuple[IdleStep, ...]
) -> None:
    policy = replace(POLICY, steps=steps)
    idle = [value < 5 for value in percent for _ in range(5)]
    taken = walk(idle, policy)
    for (before, first), (after, second) in pairwise(taken):
        was_used = not all(idle[before : after + 1])
        assert was_used or (ALL.index(second) > ALL.index(first) and after - before >= 30)
    assert all(all(idle[minute - 30 : minute + 1]) for minute, _ in taken)
    assert {step for _, step in taken} <= set(steps)


@given(USE, STEPS)
def test_the_preview_says_what_the_ladder_would_have_done(
    percent: list[float], steps: tuple[IdleStep, ...]
) -> None:
    """The live ladder looks every minute, at whole steps of five minutes."""
    policy = replace(POLICY, steps=steps)
    end = NOW + len(percent) * STEP_SECONDS * timedelta(seconds=1)
    replayed = replay_ladder(policy, steps, used(*percent), NOW, end)
    live: list[IdleStep] = []
    state = IdleState(1, 1)
    for count in range(1, len(percent) + 1):
        begin = used(*percent[:count]).idle_since(policy.idle_percent)
        since = None if begin is None else datetime.fromtimestamp(begin, UTC)
        state, step = climb(policy, steps, state, since, NOW + count * STEP_SECONDS * timedelta(seconds=1))
        live += [step] if step else []
        if step in (IdleStep.PREEMPT, IdleStep.END):
            break
    assert [planned.step for planned in replayed.steps] == live
    assert timedelta() <= replayed.returned <= end - NOW


def test_a_gpu_without_samples_is_neither_used_nor_idle() -> None:
    nan = float("nan")
    assert used(0, 0, nan).idle_since(5) is None
    assert used(0, nan, 0).idle_since(5) == FIRST + 2 * STEP_SECONDS
    assert used(nan, 0, 9).hours(5) == (1 / 12, 1 / 12)
    missing = GpuUtilisation.from_samples(FIRST, np.array([[1.0, 2.0, 0.0, 100.0]]), 2)
    assert missing.idle_since(5) is None


def test_a_job_that_uses_one_of_its_gpus_is_not_idle() -> None:
    assert GpuUtilisation(FIRST, np.array([[0.0, 90.0]])).idle_since(5) is None


@pytest.mark.parametrize(
    ("kind", "gpus", "judged"), [("batch", 2, True), ("session", 1, True), ("batch", 0, False)]
)
def test_jobs_with_whole_gpus_are_judged(kind: str, gpus: float, judged: bool) -> None:
    assert is_judged(replace(a_job(1, NOW), kind=kind, resources=Resources(gpus=gpus))) == judged


@pytest.mark.parametrize(("kind", "gpus"), [("batch", 0.5), ("service", 1), ("build", 1)])
def test_shared_gpus_services_and_builds_are_never_judged(kind: str, gpus: float) -> None:
    assert not is_judged(replace(a_job(1, NOW), kind=kind, resources=Resources(gpus=gpus)))


def test_sessions_are_left_to_the_idle_culler_and_only_preemptible_jobs_are_preempted() -> None:
    job = a_job(1, NOW)
    assert steps_for(POLICY, replace(job, kind="session")) == ALL[:3]
    assert steps_for(POLICY, job) == (*ALL[:3], IdleStep.END)
    assert steps_for(POLICY, replace(job, preemptible=True)) == ALL


def test_a_step_that_was_removed_from_the_settings_is_skipped() -> None:
    assert next_step((IdleStep.NOTE, IdleStep.END), IdleStep.MESSAGE) is IdleStep.END
    assert next_step((IdleStep.NOTE,), IdleStep.MESSAGE) is None


@given(st.floats(0, 500), st.floats(0, 500), st.floats(1, 16), st.integers(0, 4))
def test_credit_is_less_than_the_charge_and_than_what_came_back(
    idle: float, limit: float, gpus: float, last: int
) -> None:
    """However often it is repeated: each round costs more than it returns."""
    state = IdleState(1, 1, ALL[last], NOW + idle * MINUTE / 2, NOW)
    now = NOW + idle * MINUTE
    planned = planned_steps(POLICY, ALL, state)
    returned = early_return(state, planned[-1].at if planned else None, NOW + limit * MINUTE, gpus, now)
    charged = idle / 60 * gpus
    assert 0 <= returned.credit_gpu_hours <= charged / 2 + 1e-9
    assert returned.credit_gpu_hours <= returned.gpu_hours
    assert planned or returned.gpu_hours == 0


def test_credit_falls_the_later_the_gpus_are_given_back() -> None:
    state = IdleState(1, 1, IdleStep.NOTE, NOW + 30 * MINUTE, NOW)
    last = planned_steps(POLICY, ALL, state)[-1].at
    given = [early_return(state, last, None, 1, NOW + m * MINUTE).credit_gpu_hours for m in (90, 120, 150)]
    assert given == sorted(given, reverse=True)
    assert given[-1] == 0
    assert early_return(state, last, NOW + 31 * MINUTE, 1, NOW + 30 * MINUTE).credit_gpu_hours < 0.01
