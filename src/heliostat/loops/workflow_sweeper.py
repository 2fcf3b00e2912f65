"""Removes what workflows that were over long ago have handed on as files, if the admin wants that."""

from collections.abc import Iterator
from datetime import datetime

from heliostat.loops.sweeper import Sweeper, numbers_in
from heliostat.store.workflows import over_before

_MANY = 500


class WorkflowSweeper(Sweeper):
    def _due(self, before: datetime) -> Iterator[int]:
        if not self._folder.is_dir():
            return
        numbers = sorted(numbers_in(self._folder))
        for start in range(0, len(numbers), _MANY):
            with self._store.read() as conn:
                over = over_before(conn, numbers[start : start + _MANY], before.timestamp())
            yield from sorted(over)
