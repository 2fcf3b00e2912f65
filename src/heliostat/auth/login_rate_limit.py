"""Rate limit for failed logins, against password guessing. One client cannot use it to lock out another."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from heliostat.auth.client_address import network_of
from heliostat.errors import TooManyRequests

K = TypeVar("K", bound=Hashable)

FREE_FAILURES = 5  # of one client for one name
FREE_FAILURES_FROM_UNKNOWN_CLIENTS = 50  # of all clients from which this name has not logged in before
MAX_DELAY_SECONDS = 300.0
FAILURE_MEMORY_SECONDS = 3600.0


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


@dataclass(frozen=True, slots=True)
class LoginAttempt:
    """One login that is being checked. Attempts with the same `queue_key` wait for each other."""

    name: str
    client: str
    is_unknown_client: bool

    @property
    def queue_key(self) -> tuple[str, str]:
        return ("", self.client) if self.is_unknown_client else (self.name, self.client)


class LoginRateLimiter:
    """Counts failed logins per name and client. Thread-safe; a restart resets it.

    Guesses from many addresses are counted per name, too, but do not count for a client from which this name has
    logged in before. An attempt counts as failed until it succeeds, so concurrent attempts give no advantage.
    """

    def __init__(self, clock: Callable[[], float], size: int = 10_000) -> None:
        self._clock, self._size = clock, size
        self._lock = threading.Lock()
        self._pairs: _Counter[tuple[str, str]] = _Counter(FREE_FAILURES, size)
        self._names: _Counter[str] = _Counter(FREE_FAILURES_FROM_UNKNOWN_CLIENTS, size)
        self._familiar: OrderedDict[tuple[str, str], None] = OrderedDict()

    def begin_login(self, name: str | None, address: str) -> LoginAttempt:
        """Raises TooManyRequests while the caller has to wait. None: a name that no account can have."""
        now, pair = self._clock(), (name or "", network_of(address))
        with self._lock:
            attempt = LoginAttempt(*pair, is_unknown_client=pair not in self._familiar)
            wait = self._pairs.wait(pair, now)
            if attempt.is_unknown_client:
                wait = max(wait, self._names.wait(attempt.name, now) if attempt.name else 0.0)
            if wait > 0:
                raise TooManyRequests("Too many failed logins.", f"Try again in {math.ceil(wait)} seconds.")
            self._pairs.add(pair, now)
            if attempt.is_unknown_client:
                self._names.add(attempt.name, now)
        return attempt

    def login_succeeded(self, attempt: LoginAttempt) -> None:
        """Resets the count of this client for this name; failures of unknown clients stay counted."""
        pair = attempt.name, attempt.client
        with self._lock:
            self._pairs.clear(pair)
            if attempt.is_unknown_client:
                self._names.take_back(attempt.name)
            self._familiar[pair] = None
            self._familiar.move_to_end(pair)
            if len(self._familiar) > self._size:
                self._familiar.popitem(last=False)

    def login_aborted(self, attempt: LoginAttempt) -> None:
        """The attempt ended without a result, through no fault of the caller."""
        with self._lock:
            self._pairs.take_back((attempt.name, attempt.client))
            if attempt.is_unknown_client:
                self._names.take_back(attempt.name)


class _Counter(Generic[K]):
    """Failures by key, least recent first.

    When full, it drops the least recent key. To exploit that, an attacker needs as many failures on other keys as
    the counter holds, which takes longer than waiting.
    """

    def __init__(self, free_failures: int, size: int) -> None:
        self._free_failures = free_failures
        self._size = size
        self._failures: OrderedDict[K, _Failures] = OrderedDict()

    def wait(self, key: K, now: float) -> float:
        failures = self._failures.get(key)
        if failures is None:
            return 0.0
        failures.last_at = min(failures.last_at, now)  # the clock may have been set back
        if now - failures.last_at >= FAILURE_MEMORY_SECONDS:
            self.clear(key)
            return 0.0
        return failures.last_at + self._delay(failures.count) - now

    def add(self, key: K, now: float) -> None:
        failures = self._failures.setdefault(key, _Failures(0, now))
        failures.count += 1
        failures.last_at = now
        self._failures.move_to_end(key)
        if len(self._failures) > self._size:
            self._failures.popitem(last=False)

    def take_back(self, key: K) -> None:
        if failures := self._failures.get(key):
            failures.count -= 1
            if failures.count <= 0:
                self.clear(key)

    def clear(self, key: K) -> None:
        self._failures.pop(key, None)

    def _delay(self, count: int) -> float:
        if count < self._free_failures:
            return 0.0
        return min(2.0 ** min(count - self._free_failures, 30), MAX_DELAY_SECONDS)
