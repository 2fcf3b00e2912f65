"""Shows on standard error what a command waits for: on a terminal in place, else a line per change."""

import contextlib
import shutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Self

from heliostat.cli.forecast_format import format_likely_start
from heliostat.cli.output import format_count, sanitize_text

if TYPE_CHECKING:
    from heliostat.client.api_types import Forecast, LogWait

_ERASE_LINE = "\r\x1b[2K"


class WaitDisplay:
    """One line. Of several waiting jobs it shows the first, and the number of others."""

    def __init__(self) -> None:
        self._in_place = sys.stderr.isatty()
        self._waits: dict[int, LogWait] = {}
        self._shown = ""  # the line on the terminal; elsewhere, what was printed last
        self._is_mid_line = False  # the output before it did not end with a newline

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._erase()

    def show_wait(self, job_id: int, wait: "LogWait") -> None:
        if wait.reason is None:
            self.forget(job_id)
        else:
            self._waits[job_id] = wait
            self._show_waits()

    def forget(self, job_id: int) -> None:
        """The job does not wait any more."""
        self._waits.pop(job_id, None)
        self._show_waits()

    def show(self, subject: str, reason: str, forecast: "Forecast | None" = None) -> None:
        """A changed forecast alone does not print another line: forecasts change often."""
        text = f"{subject}: {reason}"
        start = f", starts {format_likely_start(forecast)}" if forecast else ""
        line = sanitize_text(f"{subject}{start}: {reason}")
        if not self._in_place:
            if text != self._shown:
                print(line, file=sys.stderr, flush=True)
                self._shown = text
            return
        line = _fit(line)
        if line != self._shown:
            sys.stderr.write(("\n" if self._is_mid_line else _ERASE_LINE) + line)
            sys.stderr.flush()
            self._shown, self._is_mid_line = line, False

    @contextlib.contextmanager
    def other_output(self, text: str) -> Iterator[None]:
        """While this output is printed the line is away."""
        self._erase()
        yield
        self._is_mid_line = not text.endswith("\n")
        self._show_waits()

    def _show_waits(self) -> None:
        if not self._waits:
            self._erase()
            return
        job_id, wait = next(iter(self._waits.items()))
        place = f", position {wait.position} of {wait.pending}" if wait.position else ""
        others = len(self._waits) - 1
        more = f" and {format_count(others, 'other job')}" if others and self._in_place else ""
        self.show(f"Job {job_id}{more} {wait.state}{place}", wait.reason or "", wait.forecast)

    def _erase(self) -> None:
        if self._in_place and self._shown:
            sys.stderr.write(_ERASE_LINE)
            sys.stderr.flush()
            self._shown = ""


def _fit(line: str) -> str:
    width = shutil.get_terminal_size().columns - 1
    return line if len(line) <= width else line[: width - 1] + "…"
