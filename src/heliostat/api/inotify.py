"""Tells when files in a folder change, by the kernel's word (inotify), for the event loop."""

import asyncio
import contextlib
import ctypes
import os
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator

_IN_MODIFY, _IN_CREATE = 0x2, 0x100
_HEADER = struct.Struct("iIII")


class FolderWatch:
    """Calls the watchers of a folder when a file in it grows or appears."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self._callbacks: dict[int, set[Callable[[], None]]] = defaultdict(set)

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._fd >= 0:
            loop.add_reader(self._fd, self._read)

    def detach(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._fd >= 0:
            loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def watching(self, folder: str, changed: Callable[[], None]) -> Iterator[bool]:
        """False when the folder cannot be watched (it is not there, or the kernel's limit is reached)."""
        number = self._libc.inotify_add_watch(self._fd, os.fsencode(folder), _IN_MODIFY | _IN_CREATE)
        if number < 0:
            yield False
            return
        self._callbacks[number].add(changed)
        try:
            yield True
        finally:
            self._callbacks[number].discard(changed)
            if not self._callbacks[number]:
                del self._callbacks[number]
                self._libc.inotify_rm_watch(self._fd, number)

    def _read(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._fd, 65536)
            numbers, at = set(), 0
            while at < len(data):
                number, _, _, length = _HEADER.unpack_from(data, at)
                numbers.add(number)
                at += _HEADER.size + length
            for number in numbers:
                for changed in list(self._callbacks.get(number, ())):
                    changed()
