"""A person at a terminal: what they type, and what they see."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Mapping

_DEADLINE_SECONDS = 60.0


class TerminalProcess:
    """`helio …` on a terminal of its own."""

    def __init__(
        self,
        words: list[str],
        environment: Mapping[str, str],
        uid: int | None = None,
        python: str = sys.executable,
    ) -> None:
        self.output = ""
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.environ.clear()
            os.environ.update(environment, TERM="xterm")
            if uid is not None:
                os.setuid(uid)
            os.execv(python, [python, "-m", "heliostat.cli.main", *words])

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def wait_for_output(self, text: str) -> str:
        """Waits until it has been printed since the last one; what came before it."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while text not in self.output:
            assert time.monotonic() < deadline, f"no {text!r} in {self.output!r}"
            assert self._read(), f"it ended without {text!r}: {self.output!r}"
        before, _, self.output = self.output.partition(text)
        return before

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)
        self.wait_for_exit()

    def wait_for_exit(self) -> int:
        """Its exit code, once it has ended."""
        deadline = time.monotonic() + _DEADLINE_SECONDS
        while self._read():
            assert time.monotonic() < deadline, f"it does not end: {self.output!r}"
        os.close(self._terminal)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _read(self) -> bool:
        if not select.select([self._terminal], [], [], 1.0)[0]:
            return True
        try:
            self.output += os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:
            return False
        return True
