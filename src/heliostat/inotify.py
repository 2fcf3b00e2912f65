"""inotify: notifications from the kernel that files in a folder have changed."""

import ctypes
import os
import struct

_IN_MODIFY, _IN_CREATE = 0x2, 0x100
_HEADER = struct.Struct("iIII")


class Inotify:
    """Reports (watch number, file name) for files that were modified or, with `appearing`, created."""

    def __init__(self, blocking: bool = False, appearing: bool = True) -> None:
        self._mask = _IN_MODIFY | (_IN_CREATE if appearing else 0)
        self._libc = ctypes.CDLL(None, use_errno=True)
        flags = os.O_CLOEXEC | (0 if blocking else os.O_NONBLOCK)
        self.descriptor: int = self._libc.inotify_init1(flags)

    def add_watch(self, folder: str) -> int | None:
        """The watch's number; None when the folder does not exist or the kernel's limit of watches is reached."""
        number: int = self._libc.inotify_add_watch(self.descriptor, os.fsencode(folder), self._mask)
        return None if number < 0 else number

    def remove_watch(self, number: int) -> None:
        self._libc.inotify_rm_watch(self.descriptor, number)

    def read_changes(self) -> list[tuple[int, str]]:
        """Changes since the last call. Without any, blocks or raises BlockingIOError, like os.read."""
        data = os.read(self.descriptor, 65536)
        changes, at = [], 0
        while at < len(data):
            number, _, _, length = _HEADER.unpack_from(data, at)
            name = data[at + _HEADER.size : at + _HEADER.size + length].rstrip(b"\0")
            changes.append((number, os.fsdecode(name)))
            at += _HEADER.size + length
        return changes

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
