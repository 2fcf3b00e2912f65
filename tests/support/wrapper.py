"""A wrapper of attempts (see attempt.sh), told what to run as the server does, without one."""

import itertools
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from heliostat.config import Home
from heliostat.engines.local.cgroups import CgroupTree
from heliostat.engines.local.scripts import Script
from heliostat.engines.local.spawn import Program, spawn
from heliostat.engines.local.ungrouped import UngroupedTree
from heliostat.engines.local.wrappers import DEFAULT_SIGNALS, Order, wrapper_argv
from support.waiting import wait_until


class ToldWrapper:
    """Everybody is us. Without groups there are no cgroups."""

    def __init__(
        self, folder: Path, environ: Mapping[str, str] | None = None, groups: CgroupTree | None = None
    ) -> None:
        self.home = Home(folder)
        for made in (self.home.attempts, self.home.jobs):
            made.mkdir(exist_ok=True)
        self._line, theirs = socket.socketpair()
        self._line.settimeout(120)
        environment = {"PATH": os.environ["PATH"], **(environ or {})}
        with theirs:
            program = Program(
                wrapper_argv(self.home, "told", groups or UngroupedTree("told")),
                environment,
                {5: theirs.fileno()},
                DEFAULT_SIGNALS,
            )
            self.pid = spawn(program)
        self._scripts: list[Script] = []
        self._numbers = itertools.count()

    def tell(
        self, name: str, script: str | None, *, limit: int = 0, grace: float = 1, group: str | None = None
    ) -> None:
        """Without a script there is nothing to be opened where the order says."""
        self._lay_out(name)
        made = self.make(script or ":")
        line = Order(name, made, limit, grace, None, None).line(group or name)
        self._line.send(line if script is not None else line.replace(made.name.encode(), b"0/9999"))

    def make(self, text: str) -> Script:
        script = Script(next(self._numbers), f"{text}\n")
        self._scripts.append(script)
        return script

    def unmake(self, script: Script) -> None:
        self._scripts.remove(script)
        script.leave()

    def tell_with(self, name: str, script: Script) -> None:
        """With one that others have too."""
        self._lay_out(name)
        self._line.send(Order(name, script, 0, 1, None, None).line(name))

    def _lay_out(self, name: str) -> None:
        job, attempt = name.split(".")
        (self.home.jobs / job).mkdir(exist_ok=True)
        for stream in ("stdout", "stderr"):
            (self.home.jobs / job / f"{attempt}.{stream}").touch()

    def hear(self) -> str:
        """The next one that is over; nothing: it has hung up."""
        said = b""
        while not said.endswith(b"\n") and (byte := self._line.recv(1)):
            said += byte
        return said.decode().partition(" ")[0].strip()

    def hang_up(self) -> None:
        self._line.close()
        for script in self._scripts:
            script.leave()
        self._scripts = []

    def trace(self, name: str, suffix: str = "started") -> Path:
        return self.home.attempts / f"{name}.{suffix}"

    def status(self, name: str) -> str:
        return self.trace(name).read_text().split()[-1].removesuffix("-")

    def output(self, name: str) -> str:
        job, attempt = name.split(".")
        return (self.home.jobs / job / f"{attempt}.stdout").read_text()

    def wait(self) -> None:
        """Until its process has ended."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        wait_until(lambda: os.waitid(os.P_PID, self.pid, how), "the wrapper has left")

    def end(self) -> None:
        self.hang_up()
        os.killpg(self.pid, 9)
        os.waitpid(self.pid, 0)
