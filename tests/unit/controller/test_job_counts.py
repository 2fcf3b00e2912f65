"""Starts, waits and ends of jobs are counted when the queue follows their commits."""

from datetime import timedelta

from heliostat.controller.job_counts import JobCounts
from heliostat.controller.synced_queue import SyncedQueue
from heliostat.models import JobState
from heliostat.scheduling.policy import SchedulingPolicy
from heliostat.scheduling.queue_state import QueueState
from heliostat.store.database import StoreChanges
from unit.scheduling.builders import NOW, a_job

FAILED = {"state": JobState.FAILED, "reason": "exit code 1"}
OUT_OF_MEMORY = {"state": JobState.FAILED, "reason": "out of memory: it used more memory than it requested"}


def a_queue(counts: JobCounts | None = None) -> SyncedQueue:
    jobs = [a_job(number, submitted_at=NOW - timedelta(seconds=10 - number)) for number in (1, 2, 3)]
    return SyncedQueue(QueueState(SchedulingPolicy()), jobs, NOW, counts)


def change(queue: SyncedQueue, number: int, **values: object) -> None:
    queue.apply_changes(StoreChanges(changed_jobs=[(number, values)]), NOW)


def test_a_start_is_counted_once_with_its_wait() -> None:
    queue = a_queue()
    change(queue, 1, state=JobState.STARTING, waited_seconds=70.0)
    change(queue, 1, state=JobState.RUNNING)
    assert queue.counts.starts == 1
    samples = dict(queue.counts.waits.samples(("priority_class",)))
    assert samples['_sum{priority_class="normal"}'] == 70
    assert samples['_bucket{priority_class="normal",le="60.0"}'] == 0


def test_an_end_is_counted_by_its_cause() -> None:
    queue = a_queue()
    change(queue, 1, **FAILED)
    change(queue, 2, **OUT_OF_MEMORY)
    change(queue, 3, state=JobState.CANCELLED)
    assert queue.counts.ends.counts() == {("failed",): 1, ("out_of_memory",): 1, ("cancelled",): 1}


def test_a_queue_that_is_loaded_again_counts_on() -> None:
    queue = a_queue()
    change(queue, 1, **FAILED)
    again = a_queue(queue.counts)
    change(again, 2, **FAILED)
    assert again.counts.ends.counts() == {("failed",): 2}


def test_the_figures_are_those_of_unfinished_jobs() -> None:
    queue = a_queue()
    change(queue, 1, **FAILED)
    change(queue, 2, state=JobState.RUNNING)
    figures = queue.figures(NOW)
    assert {key: count for key, count in figures.unfinished.items() if count} == {
        ("batch", JobState.PENDING): 1,
        ("batch", JobState.RUNNING): 1,
    }
    assert [job.id for job in figures.active] == [2]
    assert figures.longest_wait_seconds == 7


def test_an_empty_queue_has_no_wait() -> None:
    assert SyncedQueue(QueueState(SchedulingPolicy())).figures(NOW).longest_wait_seconds == 0
