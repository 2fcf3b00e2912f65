"""Actions at a time or at the end of a process."""

import threading
from collections.abc import Iterator

import pytest

from heliostat.engines.local.process_watch import ProcessWatch


@pytest.fixture
def watch() -> Iterator[ProcessWatch]:
    made = ProcessWatch()
    yield made
    made.close()


def test_an_action_that_fails_does_not_end_the_watch(watch: ProcessWatch) -> None:
    came = threading.Event()
    watch.call_after(0, lambda: 1 / 0)
    watch.call_after(0, came.set)
    assert came.wait(10)
