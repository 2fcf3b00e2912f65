"""Failed logins in the audit log: a few entries per account and hour, however many there are."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial

from heliostat.store import accounts
from heliostat.store.database import Store

_WINDOW = timedelta(hours=1)
_UNKNOWN = "(no such account)"  # without the name: users sometimes type passwords there


class FailedLogins:
    """Records the 1st, 10th, 100th… failure of an account in an hour. Thread-safe; a restart resets the count."""

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store, self._now = store, now
        self._lock = threading.Lock()
        self._counts: dict[str, tuple[datetime, int]] = {}

    def record(self, account: str | None, address: str) -> None:
        """None: no such account."""
        now, name = self._now(), account or _UNKNOWN
        with self._lock:
            since, count = self._counts.get(name, (now, 0))
            if not timedelta() <= now - since < _WINDOW:
                since, count = now, 0
            self._counts[name] = since, count + 1
        if str(count + 1).strip("0") == "1":
            self._store.submit_write(
                partial(
                    accounts.add_failed_login_entry,
                    target=name,
                    address=address,
                    detail={"failures_within_the_hour": count + 1},
                    at=now,
                )
            )
