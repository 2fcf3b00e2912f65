"""The state of the queue and its snapshots."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.models import Job, JobState, Resources
from heliostat.scheduling.plan import plan
from heliostat.scheduling.policy import ChargeRates, SchedulingPolicy
from heliostat.scheduling.queue_state import PastUsage, QueueState
from heliostat.scheduling.snapshot import Snapshot
from unit.scheduling.builders import NOW, a_job, a_node, a_plan, a_queue_state, a_running_job, started
from unit.scheduling.random_cases import MANY, Case, cases

HOUR = 3600
GPU = Resources(1, 10, 1)
LATER = NOW + timedelta(hours=2)


def picture(snapshot: Snapshot) -> dict[str, object]:
    """All values that a plan may read, independent of the order of rows."""
    free, usage = (
        snapshot.free,
        zip(snapshot.share_tree.leaves, snapshot.usage_by_leaf.round(6).tolist(), strict=True),
    )
    hidden = {"shape", "leaf"}  # numbers that depend on the order
    return {
        "pending": sorted(_values(row, hidden) for row in snapshot.pending),
        "running": sorted(_values(row, hidden) for row in snapshot.running),
        "free": [free.cpus.tolist(), free.memory_mib.tolist(), free.gpus.tolist(), free.running_count.tolist()],
        "held": dict(snapshot.held_devices),
        "parts": {uuid: round(used, 6) for uuid, used in snapshot.shared_device_use.items()},
        "jobs": dict(snapshot.jobs),
        "usage": {leaf: used for leaf, used in usage if used},
        "month": {scope: round(hours, 6) for scope, hours in snapshot.month_gpu_hours.items() if hours},
    }


def _values(row: np.void, hidden: set[str]) -> str:
    return repr([(name, row[name]) for name in row.dtype.names or () if name not in hidden])


@MANY
@given(cases(), st.integers(0, 99))
def test_a_snapshot_equals_that_of_a_new_queue_state_whatever_happened_before(case: Case, seed: int) -> None:
    random, board = Random(seed), QueueState(case.policy)
    steps = [lambda: board.set_accounts(case.accounts), lambda: board.set_reservations(case.reservations)]
    random.shuffle(steps)
    board.set_nodes(case.nodes[1:])
    for job in random.sample(case.jobs, len(case.jobs)):
        board.update_job(replace(job, state=JobState.HELD), NOW)
        board.update_job(job, NOW)
    for other in (a_job(500), a_running_job(501, case.nodes[0].name)):
        board.update_job(other, NOW)
        board.update_job(replace(other, state=JobState.CANCELLED, started_at=None), NOW)
    board.set_nodes(case.nodes)
    for step in steps:
        step()
    assert picture(board.snapshot(LATER)) == picture(case.board().snapshot(LATER))


@MANY
@given(cases(), st.integers(0, 99))
def test_a_snapshot_with_ended_jobs_equals_that_after_they_have_ended(case: Case, seed: int) -> None:
    ended = [job for job in case.running if Random(seed + job.id).random() < 0.5]
    before = picture(case.board().snapshot(NOW, ended={job.id for job in ended}))
    board = case.board([job for job in case.jobs if job not in ended])
    after = picture(board.snapshot(NOW))
    assert {name: before[name] for name in ("pending", "running", "free", "held", "parts")} == {
        name: after[name] for name in ("pending", "running", "free", "held", "parts")
    }


@MANY
@given(cases())
def test_a_copy_is_independent(case: Case) -> None:
    board = case.board()
    fork = board.copy()
    before = picture(board.snapshot(NOW))
    assert picture(fork.snapshot(NOW)) == before
    for start in plan(fork.snapshot(NOW), case.policy, NOW).starts:
        job = replace(
            start.job, state=JobState.RUNNING, node=start.node, devices=start.devices, places=start.places
        )
        fork.update_job(replace(job, started_at=NOW), NOW)
    for job in case.running:
        fork.update_job(replace(job, state=JobState.COMPLETED, ended_at=LATER), LATER)
    fork.update_job(a_job(999, user="new", project="new"), NOW)
    assert picture(board.snapshot(NOW)) == before


def test_a_job_that_stops_running_is_charged_for_its_resources() -> None:
    running = a_running_job(9, "a", replace(GPU, gpus=2), devices=("a-0", "a-1"))
    for state in (JobState.COMPLETED, JobState.PENDING, JobState.LOST, JobState.HELD):
        board = a_queue_state((a_node("a", gpus=4),), [running])
        board.update_job(replace(running, state=state, ended_at=LATER), LATER)
        snapshot = board.snapshot(LATER)
        per_hour = 2 + 0.02 + 10 / 1024 * 0.002
        assert snapshot.past_usage.sum() == pytest.approx(2 * per_hour, rel=1e-2)
        assert snapshot.month_gpu_hours[("user", "ann")] == pytest.approx(4.0)
        assert snapshot.month_gpu_hours[("class normal", "default")] == pytest.approx(4.0)


@given(st.floats(0, 100), st.floats(0.01, 3))
def test_credit_lowers_the_charge_of_a_job_but_never_below_zero(credit: float, per_gpu: float) -> None:
    rates = ChargeRates(gpus={"a100": per_gpu})
    running = a_running_job(9, "a", replace(GPU, gpus=2), devices=("a-0", "a-1"))
    charged = []
    for given_back in (0.0, credit):
        board = a_queue_state((a_node("a", gpus=4),), [running], policy=SchedulingPolicy(charges=rates))
        stopping = replace(running, stop_requested="cancel", credit_gpu_hours=given_back)
        board.update_job(stopping, LATER)
        board.update_job(replace(stopping, state=JobState.CANCELLED, ended_at=LATER), LATER)
        charged.append(float(board.snapshot(LATER).past_usage.sum()))
    whole, lowered = charged
    assert 0 <= lowered <= whole
    assert whole - lowered <= credit * board.policy.charges.gpu * max(per_gpu, 1) + 1e-9


@pytest.mark.parametrize("before", [JobState.STARTING, JobState.PENDING])
def test_a_job_whose_start_and_end_are_reported_together_is_charged(before: JobState) -> None:
    ended = replace(a_running_job(9, "a", GPU, devices=("a-0",)), state=JobState.COMPLETED, ended_at=LATER)
    waiting = a_job(9, GPU)
    held = replace(waiting, state=before, node="a", devices=("a-0",)) if before is JobState.STARTING else waiting
    board = a_queue_state((a_node("a", gpus=4),), [held])
    board.update_job(ended, LATER)
    assert board.snapshot(LATER).month_gpu_hours[("user", "ann")] == pytest.approx(2.0)


def test_a_job_that_is_cancelled_while_pending_is_not_charged() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [a_job(9, GPU)])
    board.update_job(a_job(9, GPU, state=JobState.CANCELLED, ended_at=LATER), LATER)
    assert board.snapshot(LATER).past_usage.sum() == 0


def test_a_job_that_only_changes_is_not_charged() -> None:
    running = a_running_job(9, "a", GPU, devices=("a-0",))
    board = a_queue_state((a_node("a", gpus=4),), [running])
    board.update_job(replace(running, checkpointed_at=LATER), LATER)
    assert board.snapshot(LATER).past_usage.sum() == 0


def test_a_new_month_includes_only_its_own_usage() -> None:
    end_of_march, april = datetime(2026, 3, 31, 22, tzinfo=UTC), datetime(2026, 4, 1, 3, tzinfo=UTC)
    running = replace(a_running_job(9, "a", GPU, devices=("a-0",)), started_at=end_of_march)
    board = a_queue_state((a_node("a", gpus=4),), [running])
    board.update_job(replace(running, state=JobState.COMPLETED, ended_at=april), april)
    assert board.snapshot(april).month_gpu_hours[("user", "ann")] == pytest.approx(3.0)
    assert not any(board.snapshot(april + timedelta(days=31)).month_gpu_hours.values())


def test_past_usage_counts_for_the_share_and_this_month() -> None:
    board = a_queue_state((a_node("a", gpus=4),), [])
    now = NOW.timestamp()
    past = [
        PastUsage("ann", "red", "normal", now - HOUR, now, 1 / HOUR, 1.0),
        PastUsage("ann", "red", "normal", now - 40 * 86400, now - 39 * 86400, 1 / HOUR, 24.0),
    ]
    board.add_past_usage(past, NOW)
    snapshot = board.snapshot(NOW)
    assert snapshot.month_gpu_hours[("user", "ann")] == pytest.approx(1.0)
    assert 1.0 < snapshot.past_usage.sum() < 2.0


def test_a_starting_job_keeps_its_start_time_when_nodes_change() -> None:
    starting = replace(a_running_job(9, "a", GPU, devices=("a-0",)), state=JobState.STARTING, started_at=None)
    starting = replace(starting, time_limit_seconds=HOUR)
    board = a_queue_state((a_node("a", gpus=1),), [starting, a_job(1, GPU, time_limit_seconds=HOUR), a_job(2)])
    before = picture(board.snapshot(NOW))
    board.set_nodes((a_node("a", gpus=1),))
    assert picture(board.snapshot(NOW)) == before
    assert [head.starts_at for head in a_plan(board).booked_starts] == [NOW + timedelta(hours=1)]


def test_a_snapshot_does_not_change() -> None:
    running = a_running_job(9, "a", GPU, devices=("a-0",))
    board = a_queue_state((a_node("a", gpus=1),), [running, a_job(1, GPU)], SchedulingPolicy())
    snapshot = board.snapshot(NOW)
    before = {name: value for name, value in picture(snapshot).items() if name != "jobs"}
    board.update_job(replace(running, state=JobState.COMPLETED, ended_at=LATER), LATER)
    board.update_job(a_job(2, GPU), LATER)
    assert {name: value for name, value in picture(snapshot).items() if name != "jobs"} == before


def test_a_delayed_job_is_not_pending_in_the_snapshot() -> None:
    board = a_queue_state((a_node("a"),), [a_job(1), a_job(2)])
    assert started(plan(board.snapshot(NOW, delayed={1}), board.policy, NOW)) == {2: ("a",)}


def test_a_job_on_a_removed_node_uses_nothing_of_other_nodes() -> None:
    jobs: list[Job] = [a_running_job(9, "gone", GPU, devices=("gone-0",)), a_job(1, GPU)]
    assert started(a_plan(a_queue_state((a_node("a", gpus=1),), jobs))) == {1: ("a",)}


def test_a_job_that_ends_now_is_charged_already() -> None:
    running = a_running_job(1, "a", Resources(1, 10, 2), devices=("a-0", "a-1"), time_limit_seconds=7200)
    board = a_queue_state((a_node("a", gpus=2),), [running])
    later = NOW + timedelta(hours=1)
    foreseen = board.snapshot(later, ended=[1]).usage_by_leaf
    board.update_job(replace(running, state=JobState.COMPLETED, ended_at=later), later)
    assert foreseen == pytest.approx(board.snapshot(later).usage_by_leaf)
    assert foreseen[0] > 1.9


def test_run_times_and_submissions_are_learnt_but_not_in_a_copy_for_forecasts() -> None:
    board = a_queue_state((a_node("a", gpus=1),), [])
    copy = board.copy()
    for queue in (board, copy):
        for number in range(1, 7):
            queue.update_job(a_job(number, GPU, time_limit_seconds=HOUR), NOW)
            ran = {"started_at": NOW, "ended_at": NOW + timedelta(minutes=6)}
            queue.update_job(
                a_job(number, GPU, time_limit_seconds=HOUR, state=JobState.COMPLETED, **ran),
                NOW + timedelta(minutes=6),
            )
    job = a_job(9, GPU, time_limit_seconds=HOUR)
    assert board.durations.expected_seconds(job, HOUR) == HOUR / 8  # the least that is expected
    assert next(board.arrivals.sample(LATER.timestamp(), 0, 100))[1].id == 100
    assert copy.durations.expected_seconds(job, HOUR) == HOUR
    assert list(copy.arrivals.sample(LATER.timestamp(), 0, 100)) == []
