"""Past usage of each account, with exponential decay: older usage counts less."""

import math

import numpy as np

from heliostat.scheduling.keyed_array import Array

_RESCALE_AFTER = 40.0  # half-lives after which the amounts are rescaled


class UsageLedger:
    """Usage by account number, in GPU-hours at the charge rates of the policy.

    Amounts are stored relative to a fixed time: later charges are scaled up instead of decaying older ones, so
    that passing time needs no update.
    """

    def __init__(self, half_life_seconds: float) -> None:
        self._half_life = half_life_seconds
        self._since: float | None = None
        self._amounts = np.zeros(16)

    def charge(self, account: int, rate: float, start: float, end: float) -> None:
        """Add `rate` per second from start to end."""
        self._ensure_capacity(account, end)
        growth = self._growth(end) - self._growth(start)
        self._amounts[account] += rate * self._half_life / math.log(2) * growth

    def decayed_usage(self, accounts: int, now: float) -> Array:
        """Usage of the first `accounts` accounts after decay."""
        usage = np.zeros(accounts)
        known = min(accounts, len(self._amounts))
        usage[:known] = self._amounts[:known] * self._decay_since(now)
        return usage

    def decayed_seconds(self, starts: Array, now: float) -> Array:
        """Decayed length of periods from `starts` until now."""
        return self._half_life / math.log(2) * (1.0 - np.exp2((starts - now) / self._half_life))

    def copy(self) -> "UsageLedger":
        other = UsageLedger(self._half_life)
        other._since, other._amounts = self._since, self._amounts.copy()
        return other

    def _growth(self, at: float) -> float:
        since = at if self._since is None else self._since
        return float(2.0 ** ((at - since) / self._half_life))

    def _decay_since(self, now: float) -> float:
        """Fraction of a stored amount that still counts; 1 if the clock was set back."""
        since = now if self._since is None else self._since
        return float(2.0 ** min((since - now) / self._half_life, 0.0))

    def _ensure_capacity(self, account: int, now: float) -> None:
        if self._since is None:
            self._since = now
        if account >= len(self._amounts):
            growth = np.zeros(2 * account)
            growth[: len(self._amounts)] = self._amounts
            self._amounts = growth
        if now - self._since > _RESCALE_AFTER * self._half_life:
            self._amounts *= self._decay_since(now)
            self._since = now
