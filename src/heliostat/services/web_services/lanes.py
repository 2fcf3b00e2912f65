"""Threads that look at servers of people, a few for each person: whose servers are slow delays only their own."""

from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor

MOST_OF_ONE = 4  # looks at once, at the servers of one person


class Lanes:
    """Threads begin when they are needed and end with the last server of their person. Used by one thread only."""

    def __init__(self) -> None:
        self._lanes: dict[str, ThreadPoolExecutor] = {}

    def submit(self, user: str, look: Callable[[], str]) -> "Future[str]":
        if user not in self._lanes:
            self._lanes[user] = ThreadPoolExecutor(MOST_OF_ONE, thread_name_prefix="health")
        return self._lanes[user].submit(look)

    def keep(self, users: Collection[str]) -> None:
        """Only those of these people. A look that is under way ends by its own deadline; nobody waits for it."""
        for user in self._lanes.keys() - set(users):
            self._lanes.pop(user).shutdown(wait=False, cancel_futures=True)

    def close(self, *, wait: bool = False) -> None:
        for lane in self._lanes.values():
            lane.shutdown(wait=wait, cancel_futures=True)
        self._lanes.clear()
