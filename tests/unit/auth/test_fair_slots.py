"""Password hashes are expensive: one client cannot keep others waiting."""

import threading

import pytest

from heliostat.auth.fair_slots import FairSlots
from heliostat.errors import TooManyRequests
from support.waiting import wait_until

DEADLINE = 60.0


class Crowd:
    """Threads that take a slot, note it and keep it until they are told to go on."""

    def __init__(self, slots: FairSlots) -> None:
        self.slots, self.order, self.go_on = slots, list[str](), threading.Semaphore(0)
        self.threads: list[threading.Thread] = []

    def add(self, client: str) -> None:
        known = self.waiting + len(self.slots._running)
        thread = threading.Thread(target=self._work, args=(client,))
        self.threads.append(thread)
        thread.start()
        wait_until(lambda: self.waiting + len(self.slots._running) > known, "it waits or runs")

    def finish(self) -> list[str]:
        for _ in self.threads:
            self.go_on.release()
        for thread in self.threads:
            thread.join(DEADLINE)
        return self.order

    @property
    def waiting(self) -> int:
        return sum(map(len, self.slots._waiting.values()))

    def _work(self, client: str) -> None:
        with self.slots.slot(client):
            self.order.append(client)
            self.go_on.acquire(timeout=DEADLINE)


def test_clients_take_turns_however_many_attempts_one_of_them_makes() -> None:
    crowd = Crowd(FairSlots(1, DEADLINE))
    for client in ("flood", "flood", "flood", "flood", "anna", "bert"):
        crowd.add(client)
    assert crowd.finish() == ["flood", "flood", "anna", "bert", "flood", "flood"]


def test_one_client_never_has_all_slots() -> None:
    crowd = Crowd(FairSlots(2, DEADLINE))
    for client in ("flood", "flood", "anna"):
        crowd.add(client)
    wait_until(lambda: crowd.order == ["flood", "anna"], "both run")
    assert crowd.finish() == ["flood", "anna", "flood"]


def test_a_crowd_is_turned_away_at_once_and_a_wait_ends() -> None:
    slots = FairSlots(1, DEADLINE, max_waiting=3, max_own=2)
    crowd = Crowd(slots)
    for client in ("flood", "flood", "flood"):
        crowd.add(client)
    with pytest.raises(TooManyRequests), slots.slot("flood"):
        pass
    crowd.add("anna")
    with pytest.raises(TooManyRequests), slots.slot("bert"):
        pass
    crowd.finish()
    with slots.slot("bert"), pytest.raises(TooManyRequests), FairSlots(0, 0.01).slot("anna"):
        pass
