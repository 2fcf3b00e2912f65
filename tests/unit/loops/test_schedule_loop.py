"""The one timer: when it looks at the schedules, and what it says is the reason."""

import queue
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliostat.errors import StoreUnavailable
from heliostat.loops.schedule_loop import ScheduleLoop, ScheduleLoopTiming
from heliostat.models import JobState
from heliostat.services.context import Context
from heliostat.services.schedules.firing import ReconcileTrigger
from heliostat.store.database import StoreChanges

PATIENCE_SECONDS = 30
TIMING = ScheduleLoopTiming(max_sleep_seconds=0.02, retry_seconds=0.01)


class Bench:
    """A timekeeper whose looks come out one by one, each answered with when the next schedule is due."""

    def __init__(self) -> None:
        self.at = datetime(2026, 3, 1, tzinfo=UTC)
        self.looks: queue.Queue[ReconcileTrigger] = queue.Queue()
        self.next_at: datetime | None = None
        self.fails = 0
        self._listeners: list[Any] = []
        context = SimpleNamespace(store=self, now=self._now)
        self.keeper = ScheduleLoop(cast(Context, context), TIMING, self._tend)

    def _now(self) -> datetime:
        """Goes on by itself: one that stood still would look like one that is set back."""
        return self.at + timedelta(seconds=time.monotonic())

    def on_commit(self, listener: Any) -> None:
        self._listeners.append(listener)

    def commit(self, changes: StoreChanges) -> None:
        for listener in self._listeners:
            listener(changes)

    def look(self) -> ReconcileTrigger:
        return self.looks.get(timeout=PATIENCE_SECONDS)

    def _tend(self, context: Context, trigger: ReconcileTrigger) -> datetime | None:
        self.looks.put(trigger)
        if self.fails:
            self.fails -= 1
            raise StoreUnavailable
        return self.next_at


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.keeper.close()


def test_at_a_start_everything_is_looked_at(bench: Bench) -> None:
    bench.keeper.start()
    assert bench.look() == ReconcileTrigger(None, was_clock_set_back=True)


def test_it_wakes_for_schedules_that_change_and_for_jobs_that_end_and_for_nothing_else(bench: Bench) -> None:
    bench.keeper.start()
    bench.look()
    bench.commit(StoreChanges(changed_jobs=[(1, {"state": JobState.RUNNING})], nodes_changed=True))
    bench.commit(StoreChanges(changed_jobs=[(2, {"state": JobState.COMPLETED}), (3, {"reason": "x"})]))
    assert bench.look() == ReconcileTrigger({2})
    bench.commit(StoreChanges(schedules_changed=True))
    assert bench.look() == ReconcileTrigger(set())


def test_it_looks_when_the_time_has_come_by_whatever_clock(bench: Bench) -> None:
    bench.next_at = bench._now() + timedelta(hours=5)
    bench.keeper.start()
    bench.look()
    bench.next_at = None
    bench.at += timedelta(hours=6)
    assert bench.look() == ReconcileTrigger(set())


def test_a_clock_that_is_set_back_is_noticed_while_it_sleeps(bench: Bench) -> None:
    bench.keeper.start()
    bench.look()
    bench.at -= timedelta(hours=1)
    assert bench.look().was_clock_set_back


def test_what_fails_is_tried_again_as_at_a_start(bench: Bench) -> None:
    bench.fails = 3
    bench.keeper.start()
    assert [bench.look() for _ in range(4)] == [ReconcileTrigger(None, was_clock_set_back=True)] * 4


def test_it_ends_when_it_is_told_to(bench: Bench) -> None:
    bench.keeper.start()
    bench.look()
    bench.keeper.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "schedules" and thread.is_alive()]
