"""The server's log: structured lines (logfmt or JSON) on standard error."""

import contextlib
import io
import logging
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast


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

__all__ = ["bind_log_context", "configure_logging", "get_logger"]

get_logger = structlog.get_logger
bind_log_context = structlog.contextvars.bind_contextvars
"""Adds these values to all later lines of the same request."""


def configure_logging(log_format: str = "logfmt") -> None:
    """Lines of libraries, which use the standard logging, have the same format."""
    stream = cast("TextIO", _SafeStderr())
    processors: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso"),
        structlog.processors.format_exc_info,
    ]
    renderer: Any = structlog.processors.JSONRenderer()
    if log_format != "json":
        renderer = structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"])
    handler = logging.StreamHandler(stream)
    remove_metadata = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[remove_metadata, renderer], foreign_pre_chain=processors)
    )
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    structlog.configure(
        processors=[*processors, renderer],
        logger_factory=structlog.PrintLoggerFactory(stream),
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
