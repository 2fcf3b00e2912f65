"""A thread that looks after something, again and again and sooner when it is woken. It never dies of an error."""

import contextlib
import threading
from collections.abc import Callable

from heliostat.errors import HeliostatError
from heliostat.server_log import get_logger

log = get_logger()
_PATIENCE_SECONDS = 10.0  # with a look that is under way


class BackgroundLoop:
    """`look` may say in how many seconds the next is due; otherwise, and after an error, it is `seconds`."""

    def __init__(self, name: str, look: Callable[[], float | None], seconds: float, *, failure: str) -> None:
        self._look, self._seconds, self._failure = look, seconds, failure
        self._woken = threading.Event()
        self._closing = threading.Event()
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """With a look at once."""
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
        """Within a look: neither woken nor longer than until it closes."""
        self._closing.wait(seconds)

    def wake(self) -> None:
        """There is something to look at."""
        self._woken.set()

    def close(self, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        """A look that is under way may see that from `is_closing`."""
        self._closing.set()
        self._woken.set()
        if self.is_running:
            self._thread.join(patience_seconds)

    def _run(self) -> None:
        pause = self._seconds
        while True:
            self._woken.wait(pause)
            self._woken.clear()
            if self.is_closing:
                return
            pause = self._try()

    def _try(self) -> float:
        try:
            pause = self._look()
        except Exception as error:  # noqa: BLE001 - nor does it fill the log
            if not self._is_failing:
                log_failure(self._failure, error)
            self._is_failing = True
            return self._seconds
        self._is_failing = False
        return self._seconds if pause is None else pause


def log_failure(failure: str, error: Exception) -> None:
    """What people can do nothing about comes with its traceback."""
    with contextlib.suppress(Exception):  # the log may be full
        if isinstance(error, HeliostatError):
            log.error(failure, error=error.message)
        else:
            log.error(failure, exc_info=error)
