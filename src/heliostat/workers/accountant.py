"""Records what ended attempts have used, once the engine's accounting knows. Nobody waits for it."""

import threading

import structlog

from heliostat.engines.contract import Accounts, Engine
from heliostat.store.attempt_usage import add_usage
from heliostat.store.database import Store

log = structlog.get_logger()
_EVERY_SECONDS = 5.0


class Accountant:
    def __init__(self, engine: Engine, store: Store) -> None:
        self._engine, self._store = engine, store
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="accountant", daemon=True)

    def start(self) -> None:
        """Does nothing with an engine that keeps no accounts."""
        if isinstance(self._engine, Accounts):
            self._thread.start()

    def close(self) -> None:
        """What is not recorded yet is told again to the next server."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def look(self) -> int:
        """Record what is known by now; of how many attempts there was something to say."""
        if not isinstance(self._engine, Accounts):
            return 0
        used = self._engine.used()
        known = {attempt_id: usage for attempt_id, usage in used.items() if usage is not None}
        if known:
            self._store.write(lambda tx: add_usage(tx, known))
        self._engine.noted(used)
        return len(used)

    def _run(self) -> None:
        while not self._closing.wait(_EVERY_SECONDS):
            try:
                while self.look() and not self._closing.is_set():
                    pass  # there may be more
                self._failing = False
            except Exception:  # this thread must not die, nor fill the log
                if not self._failing:
                    log.exception("accounting_failed")
                self._failing = True
