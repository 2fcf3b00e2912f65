"""Waiting on a condition with a deadline, never for luck."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, seconds: float = 120.0) -> T:
    """What the condition gives once that is true. Fails when the time is over, saying what was waited for: that is
    long, for a machine that has more to do than it can. Only a test that fails waits so long."""
    began = time.monotonic()
    while not (found := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"waited {seconds:g} s in vain until {what}"
        time.sleep(poll_interval_seconds(waited))
    return found


def poll_interval_seconds(waited_seconds: float) -> float:
    """Before it is asked again. Who has waited long asks less often: each question costs the machine something."""
    return min(max(waited_seconds / 20, 0.01), 0.1)
