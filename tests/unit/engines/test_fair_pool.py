import threading
from collections.abc import Callable, Iterator

import pytest

from heliostat.engines.fair_pool import FairPool
from support.waiting import wait_until


class Work:
    """Pieces of work that end when they are let go."""

    def __init__(self) -> None:
        self.pool = FairPool("test", threads=3, threads_per_user=2)
        self.started: list[str] = []
        self._go: dict[str, threading.Event] = {}

    def submit(self, *names: str) -> None:
        for name in names:
            self._go[name] = threading.Event()
            self.pool.submit(name[:3], self._action(name))

    def let_go(self, *names: str) -> None:
        for name in names:
            self._go[name].set()

    def let_all_go(self) -> None:
        self.let_go(*self._go)

    def wait_until_started(self, *names: str) -> None:
        wait_until(lambda: len(self.started) >= len(names), f"{names} have started")
        assert sorted(self.started) == sorted(names)

    def _action(self, name: str) -> Callable[[], None]:
        def run() -> None:
            self.started.append(name)
            self._go[name].wait(60)

        return run


@pytest.fixture
def work() -> Iterator[Work]:
    work = Work()
    yield work
    work.let_all_go()
    work.pool.close()


def test_one_user_never_uses_all_threads(work: Work) -> None:
    work.submit("ann1", "ann2", "ann3", "ann4", "bob1")
    work.wait_until_started("ann1", "ann2", "bob1")


def test_users_take_turns(work: Work) -> None:
    work.submit("ann1", "ann2", "ann3", "ann4", "bob1", "bob2", "eve1")
    work.wait_until_started("ann1", "ann2", "bob1")
    for ends, starts in (("ann1", "eve1"), ("ann2", "ann3"), ("bob1", "bob2"), ("eve1", "ann4")):
        work.started.clear()
        work.let_go(ends)
        work.wait_until_started(starts)


def test_work_that_fails_frees_its_thread(work: Work) -> None:
    for _ in range(5):
        work.pool.submit("ann", lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    work.submit("ann1")
    work.wait_until_started("ann1")


def test_a_closed_pool_discards_what_has_not_started(work: Work) -> None:
    work.submit("ann1", "ann2", "ann3")
    work.wait_until_started("ann1", "ann2")
    closing = threading.Thread(target=work.pool.close)
    closing.start()
    wait_until(lambda: work.pool._closed, "it is closing")
    work.let_all_go()
    closing.join(60)
    assert sorted(work.started) == ["ann1", "ann2"]
