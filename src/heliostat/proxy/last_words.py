"""What a server said before it hung up on whoever was still talking to it.

The kernel keeps it, but an event loop that fails to write closes the socket unread. A second descriptor of the
same socket lets it be heard.
"""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator

_MOST_BYTES = 1 << 20
_AT_ONCE = 65536


class LastWords:
    """Of one connection."""

    def __init__(self) -> None:
        self._kept: socket.socket | None = None

    def keep(self, transport: asyncio.BaseTransport) -> None:
        """From now on, until `heard`. A connection that has no socket of its own loses no words."""
        seen = transport.get_extra_info("socket")
        if self._kept is None and seen is not None and seen.fileno() >= 0:
            with contextlib.suppress(OSError):  # no descriptor is left: the request itself needs none
                self._kept = socket.socket(fileno=os.dup(seen.fileno()))

    def heard(self) -> Iterator[bytes]:
        """Nobody else reads from it any more."""
        kept, self._kept = self._kept, None
        if kept is None:
            return
        left = _MOST_BYTES
        with kept:
            while left > 0:
                part = _read(kept)
                if not part:
                    return
                left -= len(part)
                yield part


def _read(kept: socket.socket) -> bytes:
    try:
        return kept.recv(_AT_ONCE, socket.MSG_DONTWAIT)
    except OSError:
        return b""
