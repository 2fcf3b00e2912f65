"""A thread that looks at running sessions now and then."""

import threading
from collections.abc import Callable

import structlog

log = structlog.get_logger()


class SessionKeeper:
    """`look` warns and ends what is due; a look that fails is followed by another."""

    def __init__(self, look: Callable[[], None], pause_seconds: float) -> None:
        self._look, self._pause_seconds = look, pause_seconds
        self._closing = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="sessions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)

    def _run(self) -> None:
        while not self._closing.wait(self._pause_seconds):
            try:
                self._look()
                self._failing = False
            except Exception:  # this thread must not die, nor fill the log
                if not self._failing:
                    log.exception("sessions_not_watched")
                self._failing = True
