"""The wrapper of an attempt (see attempt.sh), started as the engine does, without cgroups and without a server."""

import fcntl
import os
from collections.abc import Mapping
from pathlib import Path

from heliostat.engines.local import launch
from heliostat.engines.local.posix_spawn import Program, spawn_program
from heliostat.engines.local.processes import boot_id
from support.waiting import wait_until


class WrapperUnderTest:
    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self._folder, self._environ = folder, {"PATH": os.environ["PATH"], **(environ or {})}
        self._pids: dict[str, int] = {}

    def start(self, attempt: str, script: str, *, limit: int = 0, grace: float = 1) -> int:
        """Its pid."""
        words = (str(self._folder / attempt), boot_id(), str(limit), str(grace), "", "", ".", "/proc/self/fd/8")
        with self._output(attempt).open("wb") as output, os.fdopen(os.memfd_create("payload"), "wb") as payload:
            payload.write(f"{script}\n".encode())
            payload.flush()
            descriptor = fcntl.fcntl(payload, fcntl.F_DUPFD_CLOEXEC, 20)
            descriptors = {1: output.fileno(), 2: output.fileno(), 8: descriptor}
            program = Program(
                ("/bin/sh", launch._WRAPPER, *words), self._environ, descriptors, launch._DEFAULT_SIGNALS
            )
            self._pids[attempt] = spawn_program(program)
            os.close(descriptor)
        return self._pids[attempt]

    def wait(self, attempt: str) -> str:
        """Until it has ended; the exit status it left."""
        self._wait_for_end(attempt)
        return self.status_file(attempt).read_text().split()[-1]

    def run(self, attempt: str, script: str, *, limit: int = 0, grace: float = 1) -> str:
        self.start(attempt, script, limit=limit, grace=grace)
        return self.wait(attempt)

    def status_file(self, attempt: str, suffix: str = "started") -> Path:
        return self._folder / f"{attempt}.{suffix}"

    def output(self, attempt: str) -> str:
        return self._output(attempt).read_text()

    def kill_all(self) -> None:
        for attempt, pid in list(self._pids.items()):
            if not self._has_ended(attempt):
                os.killpg(pid, 9)
                self._wait_for_end(attempt)

    def _wait_for_end(self, attempt: str) -> None:
        wait_until(lambda: self._has_ended(attempt), f"the wrapper of {attempt} has ended")

    def _has_ended(self, attempt: str) -> bool:
        if attempt in self._pids and os.waitpid(self._pids[attempt], os.WNOHANG)[0]:
            del self._pids[attempt]
        return attempt not in self._pids

    def _output(self, attempt: str) -> Path:
        return self._folder / f"{attempt}.stdout"
