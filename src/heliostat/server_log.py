"""The server's own log: a line of words and values for each thing that happened."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import TextIO, cast


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Whoever can do without this library does, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _without("rich"):  # for coloured tracebacks, which no log of ours has: 5 MB
    import structlog

__all__ = ["configure_logging", "get_logger"]

get_logger = structlog.get_logger


def configure_logging() -> None:
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            structlog.processors.format_exc_info,
            structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _UnfailingLog())),
        cache_logger_on_first_use=True,
    )


class _UnfailingLog(io.TextIOBase):
    """The log may be on the disk that is full: a word that cannot be written must not become a failure."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
