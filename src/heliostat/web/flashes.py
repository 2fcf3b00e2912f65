"""A word about what was just done, shown once on the next page."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Literal

from heliostat.auth.web import digest_of

Kind = Literal["good", "bad", "note"]
_MOST_BROWSERS = 1000
_MOST_EACH = 5


@dataclass(frozen=True, slots=True)
class Flash:
    kind: Kind
    text: str


class Flashes:
    """Kept in memory by browser; whoever restarts the server in between loses a sentence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, list[Flash]] = OrderedDict()

    def add(self, secret: str, flash: Flash) -> None:
        with self._lock:
            mine = self._kept.setdefault(digest_of(secret), [])
            mine.append(flash)
            del mine[:-_MOST_EACH]
            while len(self._kept) > _MOST_BROWSERS:
                self._kept.popitem(last=False)

    def take(self, secret: str) -> tuple[Flash, ...]:
        if not self._kept:
            return ()
        with self._lock:
            return tuple(self._kept.pop(digest_of(secret), ()))
