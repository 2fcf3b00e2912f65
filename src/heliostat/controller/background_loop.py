"""A background thread that runs a function periodically, and earlier when it is woken. Errors do not end it."""

import contextlib
import threading
import time
from collections.abc import Callable

from heliostat.errors import HeliostatError
from heliostat.server_log import get_logger

log = get_logger()
_CLOSE_TIMEOUT_SECONDS = 10.0  # for a call in progress


class LoopRecord:
    """How often the calls of a loop have failed, and when one last succeeded. For monitoring."""

    def __init__(self, name: str) -> None:
        self.name, self.failures = name, 0
        self.last_success_at: float | None = None  # seconds since 1970

    def succeeded(self) -> None:
        self.last_success_at = time.time()

    def failed(self) -> None:
        self.failures += 1


class BackgroundLoop:
    """`run_once` may return the seconds until its next call; otherwise, and after an error, it is `seconds`."""

    def __init__(self, name: str, run_once: Callable[[], float | None], seconds: float, *, failure: str) -> None:
        self._run_once, self._seconds, self._failure = run_once, seconds, failure
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._is_failing = False
        self.record = LoopRecord(name)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """With a first call immediately."""
        self._woken.set()
        self.start_after_interval()

    def start_after_interval(self) -> None:
        self._thread.start()
        _started.add(self)

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
        _started.discard(self)
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
            self.record.failed()
            return self._seconds
        self._is_failing = False
        self.record.succeeded()
        return self._seconds if pause is None else pause


_started: set[BackgroundLoop] = set()


def started_loops() -> list[BackgroundLoop]:
    """All loops of this process that were started and not closed, by name."""
    return sorted(_started.copy(), key=lambda loop: loop.record.name)


def log_failure(failure: str, error: Exception) -> None:
    """Unexpected errors are logged with their traceback."""
    with contextlib.suppress(Exception):  # the log may be full
        if isinstance(error, HeliostatError):
            log.error(failure, error=error.message)
        else:
            log.error(failure, exc_info=error)
