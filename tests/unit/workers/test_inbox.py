"""When the controller makes its next round."""

import threading
import time

from heliostat.models import AttemptId, Started
from heliostat.workers.inbox import Inbox, News
from unit.store.made_up import NOW

_LONG = 60.0


def a_start(number: AttemptId = "1.1") -> Started:
    return Started(number, NOW, ())


class TakenAside:
    """The inbox's next round, waited for in another thread."""

    def __init__(self, inbox: Inbox) -> None:
        self._news: list[News] = []
        self._thread = threading.Thread(target=lambda: self._news.append(inbox.take(lambda: _LONG)), daemon=True)
        self._thread.start()

    def is_there(self, seconds: float) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


def after_a_long_round(monkeypatch) -> Inbox:  # type: ignore[no-untyped-def]
    """One with so long a breath that only who hurries is handled."""
    monkeypatch.setattr("heliostat.workers.inbox._LONGEST_BREATH_SECONDS", _LONG)
    monkeypatch.setattr("heliostat.workers.inbox._SHORTEST_BREATH_SECONDS", _LONG)
    monkeypatch.setattr("heliostat.workers.inbox._COMPANY_SECONDS", 0.0)
    inbox = Inbox()
    inbox.put_observations([a_start()])
    inbox.take(lambda: _LONG)
    return inbox


def test_even_what_is_urgent_lets_others_have_a_moment_after_a_round(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    inbox = after_a_long_round(monkeypatch)
    monkeypatch.setattr("heliostat.workers.inbox._URGENT_BREATH_SECONDS", _LONG)
    taken = TakenAside(inbox)
    inbox.put_observations([a_start("2.1")], is_urgent=True)
    assert not taken.is_there(0.05)
    inbox.close()
    assert taken.is_there(10.0)


def test_what_is_urgent_ends_the_breath_between_rounds(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    inbox = after_a_long_round(monkeypatch)
    taken = TakenAside(inbox)
    inbox.put_observations([a_start("2.1")])
    assert not taken.is_there(0.05), "it waits for company"
    inbox.put_observations([a_start("3.1")], is_urgent=True)
    assert taken.is_there(10.0)


def test_what_was_urgent_before_a_round_is_over_is_not_so_after_it(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    inbox = after_a_long_round(monkeypatch)
    inbox.put_observations([a_start("2.1")], is_urgent=True)  # while the round goes on, which sees to it
    taken = TakenAside(inbox)
    assert not taken.is_there(0.05)
    inbox.close()
    assert taken.is_there(10.0)


def test_the_last_word_is_not_forgotten_though_a_round_ends_after_it(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    inbox = after_a_long_round(monkeypatch)
    monkeypatch.setattr("heliostat.workers.inbox._LONGEST_BREATH_SECONDS", -1.0)  # nobody is submitting
    inbox.put_observations([a_start("2.1")], is_last=True)
    monkeypatch.setattr("heliostat.workers.inbox._LONGEST_BREATH_SECONDS", _LONG)
    began = time.monotonic()
    assert TakenAside(inbox).is_there(10.0)
    assert time.monotonic() - began < _LONG / 2
