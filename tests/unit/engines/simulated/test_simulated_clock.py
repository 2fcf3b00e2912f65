import threading
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliostat.engines.simulated.clock import ManualClock, RealClock


@given(delays=st.lists(st.floats(0, 1000), max_size=30))
def test_calls_are_made_in_order_each_at_its_own_time(delays: list[float]) -> None:
    clock = ManualClock()
    start = clock.now()
    made: list[tuple[datetime, datetime]] = []

    def note(at: datetime) -> None:
        made.append((at, clock.now()))

    for delay in delays:
        at = start + timedelta(seconds=delay)
        clock.call_at(at, partial(note, at))
    clock.advance(1000)
    assert [at for at, _ in made] == sorted(start + timedelta(seconds=delay) for delay in delays)
    assert all(at == now for at, now in made)
    assert clock.now() == start + timedelta(seconds=1000)


def test_what_is_not_due_waits() -> None:
    clock = ManualClock()
    made: list[str] = []
    clock.call_at(clock.now() + timedelta(seconds=10), lambda: made.append("ten"))
    clock.advance(9.9)
    assert made == []
    clock.advance(0.1)
    assert made == ["ten"]


def test_calls_asked_for_by_a_call_are_made_in_the_same_turn() -> None:
    clock = ManualClock()
    made: list[datetime] = []

    def again() -> None:
        made.append(clock.now())
        if len(made) < 3:
            clock.call_at(clock.now() + timedelta(seconds=1), again)

    clock.call_at(clock.now(), again)
    clock.advance(5)
    assert len(made) == 3


def test_a_cancelled_alarm_is_not_called() -> None:
    clock = ManualClock()
    made: list[str] = []
    clock.call_at(clock.now(), lambda: made.append("never")).cancel()
    clock.advance(1)
    assert made == []


def test_a_call_cannot_turn_the_clock() -> None:
    clock = ManualClock()
    clock.call_at(clock.now(), lambda: clock.advance(1))
    with pytest.raises(RuntimeError):
        clock.advance(1)
    clock.advance(1)


def test_the_real_clock_tells_aware_utc_and_calls_no_earlier_than_asked() -> None:
    clock = RealClock()
    called_at: list[datetime] = []
    called = threading.Event()
    at = clock.now() + timedelta(milliseconds=20)

    def note() -> None:
        called_at.append(datetime.now(UTC))
        called.set()

    clock.call_at(at, note)
    assert called.wait(120)
    assert called_at[0] >= at
    clock.close()


def test_an_earlier_alarm_set_later_is_not_held_up_by_a_later_one() -> None:
    clock = RealClock()
    rung = threading.Event()
    clock.call_at(clock.now() + timedelta(hours=1), lambda: None)
    clock.call_at(clock.now() + timedelta(milliseconds=20), rung.set)
    assert rung.wait(120)
    clock.close()


def test_a_failing_call_does_not_stop_the_clock(capsys: pytest.CaptureFixture[str]) -> None:
    clock = RealClock()
    rung = threading.Event()

    def fail() -> None:
        raise ValueError("on purpose")

    clock.call_at(clock.now(), fail)
    clock.call_at(clock.now(), rung.set)
    assert rung.wait(120)
    clock.close()


def test_a_closed_clock_makes_no_calls_and_may_be_closed_again() -> None:
    clock = RealClock()
    clock.call_at(clock.now() + timedelta(hours=1), lambda: None)
    clock.close()
    clock.close()
    made: list[str] = []
    clock.call_at(clock.now(), lambda: made.append("never"))
    assert made == []
