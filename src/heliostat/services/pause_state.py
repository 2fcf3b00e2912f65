"""Whether the running server is paused."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from heliostat.config.pause_file import Pause

AFTER_RESUME = "after `helio resume`"  # when jobs start while it is paused


@dataclass(slots=True)
class PauseState:
    current: Pause | None = None  # None: not paused
    start_loops: Callable[[], None] = lambda: None  # called when it is resumed
    lock: threading.Lock = field(default_factory=threading.Lock)  # of a resumption
