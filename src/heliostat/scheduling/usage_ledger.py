"""Who has used how much: past usage fades with a half-life, so that an old week counts less than this one."""

import math

import numpy as np

from heliostat.scheduling.keyed_array import Array

_TOO_LONG = 40.0  # half-lives after which the numbers are scaled anew


class UsageLedger:
    """What was used by each account, by its number, in GPU-hours at the charges of the policy.

    Amounts are kept as seen from a fixed moment: one charged later is larger by as much as the older ones have
    faded since. So nothing has to be touched as time goes by.
    """

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._since: float | None = None
        self._amounts = np.zeros(16)

    def charge(self, account: int, rate: float, start: float, end: float) -> None:
        """So much per second from then to then."""
        self._make_room(account, end)
        grown = self._growth(end) - self._growth(start)
        self._amounts[account] += rate * self._half_life / math.log(2) * grown

    def decayed_usage(self, accounts: int, now: float) -> Array:
        """Of the first so many accounts, as it counts now."""
        found = np.zeros(accounts)
        known = min(accounts, len(self._amounts))
        found[:known] = self._amounts[:known] * self._faded_since(now)
        return found

    def decayed_seconds(self, starts: Array, now: float) -> Array:
        """What seconds that began then and last until now count for."""
        return self._half_life / math.log(2) * (1.0 - np.exp2((starts - now) / self._half_life))

    def copy(self) -> "UsageLedger":
        other = UsageLedger(self._half_life)
        other._since, other._amounts = self._since, self._amounts.copy()
        return other

    def _growth(self, at: float) -> float:
        since = at if self._since is None else self._since
        return float(2.0 ** ((at - since) / self._half_life))

    def _faded_since(self, now: float) -> float:
        """What is left of an amount: nothing after a very long time, all if the clock was set back."""
        since = now if self._since is None else self._since
        return float(2.0 ** min((since - now) / self._half_life, 0.0))

    def _make_room(self, account: int, now: float) -> None:
        if self._since is None:
            self._since = now
        if account >= len(self._amounts):
            grown = np.zeros(2 * account)
            grown[: len(self._amounts)] = self._amounts
            self._amounts = grown
        if now - self._since > _TOO_LONG * self._half_life:
            self._amounts *= self._faded_since(now)
            self._since = now
