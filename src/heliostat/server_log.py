"""The server's log: structured lines (logfmt) on standard error."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import TextIO, cast


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    """Makes an optional import of this library fail, unless it is loaded already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


with _without("rich"):  # 5 MB, for coloured tracebacks that this log does not have
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
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _SafeStderr())),
        cache_logger_on_first_use=True,
    )


class _SafeStderr(io.TextIOBase):
    """Standard error that ignores write errors: the log may be on a full disk."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()
