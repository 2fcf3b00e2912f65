"""A background thread that runs a function periodically, and earlier when it is woken. Errors do not end it."""

import contextlib
import threading
from collections.abc import Callable

from heliostat.errors import HeliostatError
from heliostat.server_log import get_logger

log = get_logger()
_CLOSE_TIMEOUT_SECONDS = 10.0  # for a call in progress


class BackgroundLoop:
    """`run_once` may return the seconds until its next call; otherwise, and after an error, it is `seconds`."""

    def __init__(self, name: str, run_once: Callable[[], float | None], seconds: float, *, failure: str) -> None:
        self._run_once, self._seconds, self._failure = run_once, seconds, failure
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """With a first call immediately."""
        self._woken.set()
        self._thread.start()

    def start_after_interval(self) -> None:
        self._thread.start()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    @property
    def is_closing(self) -> bool:
        return self._closing.is_set()

    def pause(self, seconds: float) -> None:
        """Sleep within a call. Only `close` ends it early."""
        self._closing.wait(seconds)

    def wake(self) -> None:
        """Run the next call now."""
        self._woken.set()

    def close(self, timeout_seconds: float = _CLOSE_TIMEOUT_SECONDS) -> None:
        """A call in progress can check `is_closing`."""
        self._closing.set()
        self._woken.set()
        if self.is_running:
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        pause = self._seconds
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self.is_closing:
                return
            pause = self._run_safely()

    def _run_safely(self) -> float:
        try:
            pause = self._run_once()
        except Exception as error:  # noqa: BLE001 - logged once until it succeeds again
            if not self._is_failing:
                log_failure(self._failure, error)
            self._is_failing = True
            return self._seconds
        self._is_failing = False
        return self._seconds if pause is None else pause


def log_failure(failure: str, error: Exception) -> None:
    """Unexpected errors are logged with their traceback."""
    with contextlib.suppress(Exception):  # the log may be full
        if isinstance(error, HeliostatError):
            log.error(failure, error=error.message)
        else:
            log.error(failure, exc_info=error)
