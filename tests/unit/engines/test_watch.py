import os
import threading
from collections.abc import Iterator

import pytest

from heliostat.engines.local.watch import NO_HURRY, Watch


@pytest.fixture
def watch() -> Iterator[Watch]:
    made = Watch()
    yield made
    made.close()


@pytest.mark.parametrize("mood", [NO_HURRY, None])
def test_everything_that_is_written_is_heard(watch: Watch, mood: object) -> None:
    read, write = os.pipe()
    heard, enough = bytearray(), threading.Event()

    def hear() -> object:
        heard.extend(os.read(read, 4096))
        if len(heard) == 300:
            enough.set()
        return mood

    watch.on_readable(read, hear)
    for number in range(300):
        os.write(write, bytes([number % 256]))
    assert enough.wait(120)
    assert bytes(heard) == bytes(number % 256 for number in range(300))
    watch.drop(read)
    os.close(read)
    os.close(write)


def test_times_come_while_readers_are_in_no_hurry(watch: Watch) -> None:
    read, write = os.pipe()
    came, stop = threading.Event(), threading.Event()

    def hear() -> object:
        os.read(read, 1)
        if not stop.is_set():
            os.write(write, b"x")  # it never ends
        return NO_HURRY

    watch.on_readable(read, hear)
    os.write(write, b"x")
    watch.call_after(0.01, came.set)
    assert came.wait(120)
    stop.set()


def test_an_action_that_fails_does_not_end_the_watch(watch: Watch) -> None:
    came = threading.Event()
    watch.call_after(0, lambda: 1 / 0)
    watch.call_after(0, came.set)
    assert came.wait(120)
