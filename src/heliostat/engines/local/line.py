"""Attempts that stand behind others: their wrappers wait until the one before is gone, server or no server."""

import contextlib
import os
import signal

from heliostat.engines.local.endings import Running
from heliostat.models import AttemptId


class Line:
    """Guarded by the lock of whoever keeps it."""

    def __init__(self) -> None:
        self._waiting: dict[AttemptId, Running] = {}
        self._after: dict[AttemptId, Running] = {}  # by the one before
        self._before: dict[AttemptId, Running] = {}

    def get(self, attempt_id: AttemptId) -> Running | None:
        return self._waiting.get(attempt_id)

    def __len__(self) -> int:
        return len(self._waiting)

    def last(self, before: Running) -> Running:
        """Behind whom the next one stands."""
        while after := self._after.get(before.attempt.id):
            before = after
        return before

    def add(self, running: Running, before: Running) -> None:
        self._waiting[running.attempt.id] = running
        self._after[before.attempt.id], self._before[running.attempt.id] = running, before

    def leave(self, running: Running) -> bool:
        """It has started. False: that is known."""
        return self._waiting.pop(running.attempt.id, None) is not None

    def next_after(self, gone: Running) -> Running | None:
        """Whose turn it is, if that is news; those that were given up let others pass."""
        after = self._pop_after(gone)
        while after is not None and after.is_given_up:
            after = self._pop_after(after)
        return after if after is not None and self.leave(after) else None

    def give_up(self, running: Running) -> None:
        """It will never start. Its wrapper keeps its place as long as others stand behind it."""
        running.is_given_up = True
        self.leave(running)
        last: Running | None = running
        while last is not None and last.is_given_up and last.attempt.id not in self._after:
            with contextlib.suppress(ProcessLookupError):
                os.kill(last.claim.pid, signal.SIGKILL)
            last = self._before.get(last.attempt.id)
            if last is not None:
                self._pop_after(last)

    def _pop_after(self, before: Running) -> Running | None:
        after = self._after.pop(before.attempt.id, None)
        if after is not None:
            self._before.pop(after.attempt.id, None)
        return after
