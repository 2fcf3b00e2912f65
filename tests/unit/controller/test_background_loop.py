"""A thread that looks again and again, whatever happens."""

import threading
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from heliostat.controller.background_loop import BackgroundLoop, started_loops
from heliostat.errors import Conflict

LONG = 3600.0
DEADLINE = 30.0


class Looks:
    """Counts them; each does what is next in `plan`."""

    def __init__(self) -> None:
        self.plan: list[Callable[[], float | None]] = []
        self.seen = threading.Semaphore(0)

    def __call__(self) -> float | None:
        try:
            return self.plan.pop(0)() if self.plan else None
        finally:
            self.seen.release()

    def wait(self) -> None:
        assert self.seen.acquire(timeout=DEADLINE)


@pytest.fixture
def looks() -> Looks:
    return Looks()


@pytest.fixture
def loop(looks: Looks) -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop("test", looks, LONG, failure="looks_failed")
    yield loop
    loop.close()
    assert not loop.is_running


def refuse() -> None:
    raise Conflict("It is not there.", "Come back.")


def break_down() -> None:
    raise RuntimeError("oops")


def test_it_looks_at_once_and_then_whenever_it_is_woken(loop: BackgroundLoop, looks: Looks) -> None:
    loop.start()
    looks.wait()
    loop.wake()
    looks.wait()


def test_a_look_may_say_when_the_next_is_due(loop: BackgroundLoop, looks: Looks) -> None:
    looks.plan = [lambda: 0.0, lambda: 0.0, lambda: None]
    loop.start()
    for _ in range(3):
        looks.wait()
    assert not looks.plan


def test_started_later_it_first_waits(loop: BackgroundLoop, looks: Looks) -> None:
    loop.start_after_interval()
    assert not looks.seen.acquire(blocking=False)
    loop.wake()
    looks.wait()


def test_it_goes_on_after_errors_and_tells_of_each_row_of_them_once(looks: Looks) -> None:
    looks.plan = [break_down, break_down, lambda: 0.0, refuse, lambda: None]
    loop = BackgroundLoop("test", looks, 0.001, failure="looks_failed")
    with capture_logs() as told:
        loop.start()
        for _ in range(5):
            looks.wait()
        loop.close()
    assert [line["event"] for line in told] == ["looks_failed", "looks_failed"]
    assert told[1]["error"] == "It is not there."


def test_closed_it_ends_though_it_would_wait_for_long(loop: BackgroundLoop, looks: Looks) -> None:
    loop.start()
    looks.wait()
    loop.close()
    assert not loop.is_running


def test_a_look_can_see_that_it_should_end(loop: BackgroundLoop, looks: Looks) -> None:
    began = threading.Event()

    def until_closing() -> None:
        began.set()
        while not loop.is_closing:
            threading.Event().wait(0.001)

    looks.plan = [until_closing]
    loop.start()
    assert began.wait(DEADLINE)
    loop.close()
    assert not loop.is_running


def test_a_pause_within_a_look_ends_when_it_closes_and_not_when_it_is_woken(
    loop: BackgroundLoop, looks: Looks
) -> None:
    began = threading.Event()

    def pause() -> None:
        began.set()
        loop.pause(LONG)

    looks.plan = [pause]
    loop.start()
    assert began.wait(DEADLINE)
    loop.wake()
    assert not looks.seen.acquire(timeout=0.05)
    loop.close()
    assert not loop.is_running


def test_it_records_failures_and_its_last_success(loop: BackgroundLoop, looks: Looks) -> None:
    looks.plan = [break_down, lambda: None]
    loop.start()
    looks.wait()
    loop.wake()
    looks.wait()
    loop.close()
    assert loop.record.failures == 1
    assert loop.record.last_success_at is not None


def test_it_is_listed_from_its_start_until_it_is_closed(loop: BackgroundLoop, looks: Looks) -> None:
    assert loop not in started_loops()
    loop.start()
    assert loop in started_loops()
    loop.close()
    assert loop not in started_loops()
