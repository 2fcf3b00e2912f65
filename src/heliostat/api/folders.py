"""Wakes the followers of a log when a file in its folder changes."""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator

from heliostat.inotify import Inotify


class FolderWatch:
    """Calls the watchers of a folder, in the event loop."""

    def __init__(self) -> None:
        self._inotify = Inotify()
        self._callbacks: dict[int, set[Callable[[], None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inotify.descriptor >= 0:
            loop.add_reader(self._inotify.descriptor, self._read)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._inotify.descriptor >= 0:
            loop.remove_reader(self._inotify.descriptor)
            self._inotify.close()

    @contextlib.contextmanager
    def watching(self, folder: str, changed: Callable[[], None]) -> Iterator[bool]:
        """False when the folder cannot be watched (yet)."""
        number = self._inotify.add(folder)
        if number is None:
            yield False
            return
        self._callbacks[number].add(changed)
        try:
            yield True
        finally:
            self._callbacks[number].discard(changed)
            if not self._callbacks[number]:
                del self._callbacks[number]
                self._inotify.remove(number)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            for number in {number for number, _ in self._inotify.read()}:
                for changed in list(self._callbacks.get(number, ())):
                    changed()
