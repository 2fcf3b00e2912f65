"""Waiting on a condition with a deadline, never for luck."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_until(condition: Callable[[], T], what: str, seconds: float = 20.0) -> T:
    """What the condition gives once that is true. Fails when the time is over, saying what was waited for."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds:g} s in vain until {what}"
        time.sleep(0.01)
    return found
