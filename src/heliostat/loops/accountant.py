"""Records what ended attempts have used, once the engine's accounting knows. Nobody waits for it."""

from heliostat.engines.contract import Engine, QueuesItself
from heliostat.loops.loop import Loop
from heliostat.store.attempt_usage import add_usage
from heliostat.store.database import Store

_EVERY_SECONDS = 5.0


class Accountant:
    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._loop = Loop("accountant", self._look_at_all, _EVERY_SECONDS, failure="accounting_failed")

    def start(self) -> None:
        """Does nothing with an engine that keeps no accounts."""
        if isinstance(self._engine, QueuesItself):
            self._loop.start_later()

    def close(self) -> None:
        """What is not recorded yet is told again to the next server."""
        self._loop.close()

    def look(self) -> int:
        """Record what is known by now; of how many attempts there was something to say."""
        if not isinstance(self._engine, QueuesItself):
            return 0
        used = self._engine.used()
        known = {attempt_id: usage for attempt_id, usage in used.items() if usage is not None}
        if known:
            self._store.write(lambda tx: add_usage(tx, known))
        self._engine.noted(used)
        return len(used)

    def _look_at_all(self) -> None:
        while self.look() and not self._loop.is_closing:
            pass  # there may be more
