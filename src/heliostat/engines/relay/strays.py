"""Frames about connections that we have closed: some were on their way by then, but not without end."""

from heliostat.payloads import relay_frames as frames
from heliostat.payloads.relay_frames import MOST_CONNECTIONS, WINDOW, BadFrame, Frame

_OF_ONE = 2 * WINDOW  # all the bytes there was room for, and some words without any
_WORD = WINDOW // 16


class Strays:
    """How much may still come of all of them together."""

    def __init__(self) -> None:
        self._left = 0

    def expect(self) -> None:
        """One more was closed."""
        self._left = min(self._left + _OF_ONE, MOST_CONNECTIONS * _OF_ONE)

    def came(self, frame: Frame) -> None:
        """Raises BadFrame."""
        size = len(frame.payload)
        self._left -= size if size and frame.kind == frames.DATA else max(size, _WORD)
        if self._left < 0:
            raise BadFrame("it talks about connections that there are not")
