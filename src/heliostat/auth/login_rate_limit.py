"""Rate limit for failed logins, against password guessing."""

import math
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from heliostat.auth.client_address import network_of
from heliostat.errors import TooManyRequests

FREE_FAILURES_PER_NAME = 5
FREE_FAILURES_PER_ADDRESS = 20  # a whole lab may share one address
MAX_DELAY_SECONDS = 300.0  # an attacker must not lock out the owner for long
FAILURE_MEMORY_SECONDS = 3600.0


@dataclass(slots=True)
class _Failures:
    count: int
    last_at: float


class LoginRateLimiter:
    """Counts failed logins per account name and per address. Thread-safe; a restart resets it.

    An attempt counts as failed until it succeeds, so concurrent attempts give no advantage.
    """

    def __init__(self, clock: Callable[[], float], size: int = 10_000) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._names = _Counter(FREE_FAILURES_PER_NAME, size)
        self._addresses = _Counter(FREE_FAILURES_PER_ADDRESS, size)

    def begin_login(self, name: str | None, address: str) -> None:
        """Raises TooManyRequests while the caller has to wait. None: a name that no account can have."""
        now, network = self._clock(), network_of(address)
        with self._lock:
            wait = self._addresses.wait(network, now)
            if name is not None:
                wait = max(wait, self._names.wait(name, now))
            if wait > 0:
                raise TooManyRequests("Too many failed logins.", f"Try again in {math.ceil(wait)} seconds.")
            self._addresses.add(network, now)
            if name is not None:
                self._names.add(name, now)

    def login_succeeded(self, name: str, address: str) -> None:
        """Resets the count of the name. The address gets back only this attempt: an attacker may share it."""
        with self._lock:
            self._names.clear(name)
            self._addresses.take_back(network_of(address))

    def login_aborted(self, name: str | None, address: str) -> None:
        """The attempt ended without a result, through no fault of the caller."""
        with self._lock:
            self._addresses.take_back(network_of(address))
            if name is not None:
                self._names.take_back(name)


class _Counter:
    """Failures by key, least recent first.

    When full, it drops the least recent key. To exploit that, an attacker needs as many failures on other keys as
    the counter holds, which takes longer than waiting.
    """

    def __init__(self, free_failures: int, size: int) -> None:
        self._free_failures = free_failures
        self._size = size
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    def wait(self, key: str, now: float) -> float:
        failures = self._failures.get(key)
        if failures is None:
            return 0.0
        failures.last_at = min(failures.last_at, now)  # the clock may have been set back
        if now - failures.last_at >= FAILURE_MEMORY_SECONDS:
            self.clear(key)
            return 0.0
        return failures.last_at + self._delay(failures.count) - now

    def add(self, key: str, now: float) -> None:
        failures = self._failures.setdefault(key, _Failures(0, now))
        failures.count += 1
        failures.last_at = now
        self._failures.move_to_end(key)
        if len(self._failures) > self._size:
            self._failures.popitem(last=False)

    def take_back(self, key: str) -> None:
        if failures := self._failures.get(key):
            failures.count -= 1
            if failures.count <= 0:
                self.clear(key)

    def clear(self, key: str) -> None:
        self._failures.pop(key, None)

    def _delay(self, count: int) -> float:
        if count < self._free_failures:
            return 0.0
        return min(2.0 ** min(count - self._free_failures, 30), MAX_DELAY_SECONDS)
