"""Something of Slurm that is looked at now and then, beside the rest, so that nobody waits long for it."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from heliostat.engines.slurm.programs import SlurmRefused
from heliostat.errors import HeliostatError
from heliostat.server_log import get_logger

log = get_logger()
T = TypeVar("T")


class Refreshed(Generic[T]):
    """The last look that came to something. Threads may share it."""

    def __init__(self, name: str, look: Callable[[], T], seconds: float) -> None:
        self.last: T | None = None
        self._name, self._look, self._seconds = name, look, seconds
        self._lock = threading.Lock()
        self._next = 0.0
        self._looked = threading.Event()  # no look is under way
        self._looked.set()

    def now(self) -> T:
        """Raises what the look raises; then the last one stays."""
        self.last = self._look()
        return self.last

    def again(self) -> None:
        """Now, without raising."""
        try:
            self.now()
        except (HeliostatError, SlurmRefused) as error:
            log.info(f"{self._name}_unknown", error=str(error))
        except Exception:
            log.exception(f"{self._name}_unknown")

    def if_old(self) -> None:
        """Begin a look unless there was one a while ago or one is under way. Returns at once."""
        with self._lock:
            if time.monotonic() < self._next or not self._looked.is_set():
                return
            self._next = time.monotonic() + self._seconds
            self._looked.clear()
        threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def wait(self, seconds: float) -> None:
        """Until no look is under way, but no longer than this."""
        self._looked.wait(seconds)

    def _run(self) -> None:
        try:
            self.again()
        finally:
            self._looked.set()
