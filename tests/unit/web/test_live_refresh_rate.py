import asyncio
import time

import pytest

from heliostat.services.context import ReadCache
from heliostat.web.refresh_rate import MAX_CPU_FRACTION, RefreshRateLimiter, SerialRefreshMiddleware


def test_turns_follow_from_what_a_refresh_takes() -> None:
    pace = RefreshRateLimiter()
    for _ in range(200):
        pace.record_duration(0.010)
    assert pace.interval_seconds == pytest.approx(0.010 / MAX_CPU_FRACTION, rel=0.01)
    for _ in range(200):
        pace.record_duration(60.0)
    assert pace.interval_seconds == 0.25


def test_pages_take_turns() -> None:
    async def three_turns() -> float:
        pace, began = RefreshRateLimiter(), time.perf_counter()
        await asyncio.gather(*(pace.wait_for_slot() for _ in range(3)))
        return time.perf_counter() - began

    assert asyncio.run(three_turns()) >= 2 * RefreshRateLimiter().interval_seconds * 0.9


async def _through(scope: dict[str, object], count: int) -> int:
    """How many of so many requests were being answered at once."""
    now, most = 0, 0

    async def app(scope: object, receive: object, send: object) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    middleware = SerialRefreshMiddleware(app, RefreshRateLimiter())  # type: ignore[arg-type]
    await asyncio.gather(*(middleware(scope, None, None) for _ in range(count)))  # type: ignore[arg-type]
    return most


def _scope(method: str = "GET", path: str = "/jobs") -> dict[str, object]:
    return {"type": "http", "method": method, "path": path, "headers": [(b"x-fragment", b"list")]}


def test_parts_are_made_one_after_the_other() -> None:
    assert asyncio.run(_through(_scope(), 4)) == 1


@pytest.mark.parametrize("scope", [_scope("POST"), _scope(path="/api/v1/jobs/wait"), _scope(path="/live")])
def test_who_may_take_their_time_keeps_nobody_waiting(scope: dict[str, object]) -> None:
    assert asyncio.run(_through(scope, 4)) == 4


def test_the_next_begins_when_the_answer_does() -> None:
    async def slow_reader() -> bool:
        pace, entered = RefreshRateLimiter(), asyncio.Event()

        async def reads_slowly() -> None:
            async with pace.exclusive_slot() as made:
                made()
                await entered.wait()

        reading = asyncio.create_task(reads_slowly())
        await asyncio.sleep(0)
        async with pace.exclusive_slot():
            entered.set()
        await reading
        return True

    assert asyncio.run(asyncio.wait_for(slow_reader(), 120))


def test_what_was_read_is_shared_until_something_changes() -> None:
    recent, reads = ReadCache(), iter(range(9))
    assert [recent.get_or_load("jobs", lambda: next(reads)) for _ in range(3)] == [0, 0, 0]
    recent.invalidate()
    assert recent.get_or_load("jobs", lambda: next(reads)) == 1


def test_what_began_to_be_read_before_a_change_is_not_kept() -> None:
    recent = ReadCache()

    def read_while_it_changes() -> str:
        recent.invalidate()
        return "old"

    assert recent.get_or_load("jobs", read_while_it_changes) == "old"
    assert recent.get_or_load("jobs", lambda: "new") == "new"


def test_nothing_is_trusted_for_long() -> None:
    now = [0.0]
    recent = ReadCache(lambda: now[0])
    recent.get_or_load("jobs", lambda: "old")
    now[0] = 3.0
    assert recent.get_or_load("jobs", lambda: "new") == "new"
