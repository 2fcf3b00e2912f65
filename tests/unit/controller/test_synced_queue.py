"""The picture in memory is what a fresh look at the same jobs would give."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from heliostat.controller.synced_queue import SyncedQueue
from heliostat.models import ACTIVE_STATES, TERMINAL_STATES, Job, JobState
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.store.database import StoreChanges
from support.hypothesis_examples import example_count
from unit.scheduling.builders import NOW, a_job, a_node

STEPS = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from(JobState), st.integers(-2, 2), st.integers(0, 3)), max_size=40
)


def a_queue(*jobs: Job) -> SyncedQueue:
    board = QueueState(SchedulingPolicy())
    board.set_nodes((a_node("a"),))
    return SyncedQueue(board, jobs, NOW)


@settings(max_examples=example_count(200), deadline=None)
@given(STEPS)
def test_it_follows_every_commit(steps: list[tuple[int, JobState, int, int]]) -> None:
    queue, model = a_queue(), dict[int, Job]()
    for number, state, priority, age in steps:
        if number not in model:
            job = a_job(number, priority=priority, submitted_at=NOW - timedelta(seconds=age), user=f"user{age}")
            model[number] = job
            queue.apply_changes(StoreChanges(added_jobs=[job]), NOW)
        elif model[number].state not in TERMINAL_STATES:
            values: dict[str, Any] = {"state": state, "priority": priority}
            model[number] = replace(model[number], **values)
            queue.apply_changes(StoreChanges(changed_jobs=[(number, values)]), NOW)
    living = {number: job for number, job in model.items() if job.state not in TERMINAL_STATES}
    assert len(queue) == len(living)
    assert {job.id for job in queue.active_jobs()} == {
        n for n, job in living.items() if job.state in ACTIVE_STATES
    }
    pending = [job for job in living.values() if job.state is JobState.PENDING]
    snapshot, fresh = (one.snapshot(NOW, (), ()) for one in (queue, a_queue(*living.values())))
    assert set(snapshot.pending["job"].tolist()) == {job.id for job in pending}
    for rows, others in ((snapshot.pending, fresh.pending), (snapshot.running, fresh.running)):
        assert sorted(rows["job"].tolist()) == sorted(others["job"].tolist())
    assert snapshot.held_devices == fresh.held_devices
    assert all(
        queue.count_unfinished_jobs(f"user{n}") == sum(j.user == f"user{n}" for j in living.values())
        for n in range(4)
    )


def test_the_spec_is_left_out() -> None:
    queue = a_queue()
    queue.apply_changes(StoreChanges(added_jobs=[a_job(1)]), NOW)
    known = queue.get(1)
    assert known is not None
    assert known.spec.command == ()


def test_what_has_ended_holds_nothing_and_the_delayed_are_not_tried() -> None:
    running = a_job(1, state=JobState.RUNNING, attempt=2, node="a", devices=("x",))
    queue = a_queue(running, a_job(2), a_job(3))
    assert queue.snapshot(NOW, (), ()).running["job"].tolist() == [1]
    assert queue.snapshot(NOW, ["1.2"], ()).running["job"].tolist() == []
    assert queue.snapshot(NOW, ["1.2"], ()).held_devices == {}
    assert queue.snapshot(NOW, ["1.1"], ()).running["job"].tolist() == [1]
    assert queue.snapshot(NOW, (), [2]).pending["job"].tolist() == [3]


def test_a_change_of_an_unknown_job_is_none_of_our_business() -> None:
    queue = a_queue()
    queue.apply_changes(StoreChanges(changed_jobs=[(9, {"state": JobState.RUNNING})]), NOW)
    assert len(queue) == 0
