"""To prove whose port it is may take long, by a job's own doing: then it takes few threads, and none of others."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from heliostat.engines.local import port_ownership
from heliostat.engines.local.port_ownership import PortOwnershipChecks
from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt
from heliostat.models.sessions import ListeningSocket
from unit.services.site import a_job

JOB = a_job(7, datetime(2026, 3, 1, tzinfo=UTC))


def port_of(user: str) -> tuple[Attempt, int]:
    return Attempt("7.1", replace(JOB, user=user), "here"), 4000


class Engine:
    """Finds nothing of a job of ann before it is told to."""

    def __init__(self) -> None:
        self.go_on, self.looking, self.most = threading.Event(), 0, 0
        self._lock = threading.Lock()

    def find(self, attempt: Attempt, port: int) -> ListeningSocket:
        if attempt.job.user != "ann":
            return ListeningSocket("127.0.0.1", port)
        with self._lock:
            self.looking += 1
            self.most = max(self.most, self.looking)
        assert self.go_on.wait(60)
        with self._lock:
            self.looking -= 1
        return ListeningSocket("127.0.0.1", port)


def run(
    test: Callable[[Engine, PortOwnershipChecks], Coroutine[object, object, None]], wait_seconds: float = 60.0
) -> None:
    async def limited() -> None:
        engine = Engine()
        made = PortOwnershipChecks(engine.find, wait_seconds)
        try:
            async with asyncio.timeout(60):
                await test(engine, made)
        finally:
            engine.go_on.set()
            made.close()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_a_job_that_is_slow_to_look_at_holds_up_nobody_elses() -> None:
    async def test(engine: Engine, made: PortOwnershipChecks) -> None:
        slow = [asyncio.create_task(made.find_async(*port_of("ann"))) for _ in range(50)]
        await until(lambda: engine.looking == port_ownership.MAX_CHECKS_PER_USER)
        assert (await made.find_async(*port_of("bob"))).port == 4000
        engine.go_on.set()
        assert len(await asyncio.gather(*slow)) == 50
        assert engine.most == port_ownership.MAX_CHECKS_PER_USER

    run(test)


def test_to_hang_up_and_ask_again_takes_no_more_threads() -> None:
    async def test(engine: Engine, made: PortOwnershipChecks) -> None:
        for turn in range(5):
            asked = [asyncio.create_task(made.find_async(*port_of("ann"))) for _ in range(5)]
            await until(lambda: engine.looking == port_ownership.MAX_CHECKS_PER_USER)
            await asyncio.sleep(0)
            for one in asked:
                one.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(*asked)
            assert (turn, engine.most) == (turn, port_ownership.MAX_CHECKS_PER_USER)
        engine.go_on.set()
        assert (await made.find_async(*port_of("ann"))).port == 4000

    run(test)


def test_who_waits_too_long_for_their_turn_is_told() -> None:
    async def test(engine: Engine, made: PortOwnershipChecks) -> None:
        slow = [
            asyncio.create_task(made.find_async(*port_of("ann")))
            for _ in range(port_ownership.MAX_CHECKS_PER_USER)
        ]
        await until(lambda: engine.looking == port_ownership.MAX_CHECKS_PER_USER)
        with pytest.raises(EngineUnavailable, match="long"):
            await made.find_async(*port_of("ann"))
        engine.go_on.set()
        await asyncio.gather(*slow)

    run(test, wait_seconds=0.05)
