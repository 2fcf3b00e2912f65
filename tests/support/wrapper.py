"""The wrapper of an attempt (see attempt.sh), started as the engine does, without cgroups and without a server."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from heliostat.engines.local import launch
from heliostat.engines.local.processes import boot_id


class WrapperUnderTest:
    def __init__(self, folder: Path, environ: Mapping[str, str] | None = None) -> None:
        self._folder, self._environ = folder, {"PATH": os.environ["PATH"], **(environ or {})}
        self._started: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, attempt: str, script: str, *, limit: int = 0, grace: float = 1) -> int:
        """Its pid."""
        descriptor = os.memfd_create("payload")
        os.write(descriptor, f"{script}\n".encode())
        arguments = (
            self._path(attempt),
            boot_id(),
            str(limit),
            str(grace),
            "",
            "",
            ".",
            f"/proc/self/fd/{descriptor}",
        )
        with self._path(f"{attempt}.stdout").open("wb") as output:
            self._started[attempt] = subprocess.Popen(
                ["/bin/sh", launch._WRAPPER, *arguments],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[descriptor],
                start_new_session=True,
            )
        os.close(descriptor)
        return self._started[attempt].pid

    def wait(self, attempt: str) -> str:
        """Until it has ended; the exit status it left."""
        self._started[attempt].wait(60)
        return self.trace(attempt).read_text().split()[-1]

    def run(self, attempt: str, script: str, *, limit: int = 0, grace: float = 1) -> str:
        self.start(attempt, script, limit=limit, grace=grace)
        return self.wait(attempt)

    def trace(self, attempt: str, suffix: str = "started") -> Path:
        return self._path(f"{attempt}.{suffix}")

    def output(self, attempt: str) -> str:
        return self._path(f"{attempt}.stdout").read_text()

    def end(self) -> None:
        for wrapper in self._started.values():
            if wrapper.poll() is None:
                os.killpg(wrapper.pid, 9)
                wrapper.wait(120)

    def _path(self, name: str) -> Path:
        return self._folder / name
