"""A real server process in a home of its own: started, killed, started again, and nothing left at the end.

with Server(tmp_path / "home") as server:
    job = server.client.submit("exit 3").wait(120)
    server.kill()
    server.start()
"""

import contextlib
import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from heliostat.client import Client
from heliostat.engines.local.cgroups import Cgroup, CgroupsUnavailable, find_cgroups
from heliostat.engines.local.processes import is_running, process_start_time, send_signal
from heliostat.errors import ServerUnreachable
from support import fork_server
from support.waiting import wait_until

START_SECONDS = 150.0
_SERVE = """
import os, resource
from heliostat.config import find_home, load_settings
from heliostat.server import serve
{pretend}
serve(load_settings(find_home(), {settings!r}))
"""
_WRONG_CLOCK = """
import datetime, pathlib
import heliostat.services.context as context
class WrongClock(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        wrong_by = float(pathlib.Path({file!r}).read_text())
        return datetime.datetime.now(tz) + datetime.timedelta(seconds=wrong_by)
context.datetime = WrongClock
"""


class ServerProcess:
    """Speaks through `client`, which goes on working across restarts. Its log is `home/server.log`, as usual."""

    def __init__(
        self,
        home: Path,
        *,
        cpus: int | None = None,
        open_files: int | None = None,
        clock: Path | None = None,
        harm: str = "",
        environ: Mapping[str, str] | None = None,
        **settings: Any,
    ) -> None:
        """`cpus` makes a small machine say that it has so many, lest they run out before the GPUs do.

        `open_files` is the most the server may have open; `clock` a file with the seconds by which its clock is
        wrong, to be written anew at any time; `harm` is code that breaks the server, for tests of who notices
        it; `settings` are the sections of `cluster.toml`.
        """
        self.home = home
        self.client = Client(home=home)
        self.process: subprocess.Popen[bytes] | fork_server.ForkedProcess | None = None
        pretend = [f"os.sched_getaffinity = lambda pid: set(range({cpus}))"] if cpus else []
        if open_files:
            pretend.append(f"resource.setrlimit(resource.RLIMIT_NOFILE, ({open_files}, {open_files}))")
        if clock:
            pretend.append(_WRONG_CLOCK.format(file=str(clock)))
        pretend.append(harm)
        server = {"port": 0, "simulate_gpus": "4xA100", **settings.pop("server", {})}
        self._code = _SERVE.format(pretend="\n".join(pretend), settings={"server": server, **settings})
        self._environ = {**os.environ, **(environ or {}), "HELIOSTAT_HOME": str(home)}
        self._start = self._forked if fork_server.can_fork_with(self._environ) else self._with_an_interpreter

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.tear_down()

    def start(self) -> "ServerProcess":
        """Returns once it answers."""
        self.start_without_waiting()
        self.wait_until_ready()
        return self

    def start_without_waiting(self) -> None:
        """Start the process and do not wait for it."""
        assert self.process is None, "it runs already"
        self.home.mkdir(parents=True, exist_ok=True)
        with open(self.home / "server.log", "ab") as log:
            self.process = self._start(log.fileno())

    def wait_until_ready(self) -> None:
        wait_until(self._answers, "the server answers", START_SECONDS)

    def kill(self) -> None:
        """KILL, as a crash would end it. Its jobs are left alone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """TERM, as `helio down` does."""
        self._end(signal.SIGTERM)

    @property
    def pid(self) -> int:
        assert self.process is not None, "it does not run"
        return self.process.pid

    @property
    def log(self) -> str:
        with contextlib.suppress(FileNotFoundError):
            return (self.home / "server.log").read_text(errors="replace")
        return ""

    @property
    def memory_mib(self) -> int:
        """What the server process itself holds in memory."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) // 1024

    @property
    def instance_id(self) -> str:
        """What tells the processes and control groups of this home from all others on the machine."""
        return hashlib.sha256(str(self.home).encode()).hexdigest()[:8]

    def attempt_pids(self, attempt_id: str | None = None) -> list[int]:
        """Every living process of its attempts, wrappers included, also those that left session and group."""
        return [pid for pid in _pids() if self._is_ours(pid, attempt_id)]

    def cgroups(self) -> list[Cgroup]:
        """The control groups of attempts that there are."""
        tree = find_cgroups(self.instance_id)
        if isinstance(tree, CgroupsUnavailable):
            return []
        return [group for name in tree.names() if (group := tree.find(name))]

    def assert_no_attempt_left(self) -> None:
        """No process and no control group of any attempt."""
        wait_until(lambda: not self.attempt_pids(), "the processes of all attempts are gone")
        wait_until(lambda: not self.cgroups(), "the control groups of all attempts are gone")

    def tear_down(self) -> None:
        """End the server and whatever runs for it, and take its control groups away. Never fails for that."""
        if self.process is not None:
            self.kill()
        for pid in self.attempt_pids():
            if (born := process_start_time(pid)) is not None:
                send_signal(pid, born, signal.SIGKILL)
        for group in self.cgroups():
            group.kill()
            group.remove()
        tree = find_cgroups(self.instance_id)
        if not isinstance(tree, CgroupsUnavailable):
            tree.remove()
        self.client.close()

    def _forked(self, log: int) -> fork_server.ForkedProcess:
        return fork_server.fork_process(self._code, self._environ, log, own_session=True)

    def _with_an_interpreter(self, log: int) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-c", self._code],
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
        )

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}:\n{self.log[-4000:]}"
        with contextlib.suppress(ServerUnreachable):
            return self.client.status(timeout=START_SECONDS)["pid"] == self.process.pid
        return False

    def _end(self, signal_number: int) -> None:
        assert self.process is not None, "it does not run"
        self.process.send_signal(signal_number)
        try:
            self.process.wait(120)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(120)
            raise
        finally:
            self.process = None

    def _is_ours(self, pid: int, attempt_id: str | None) -> bool:
        mark = f"HELIOSTAT_MARK={self.instance_id}-{attempt_id or ''}".encode()
        words = [mark + b"\0"] if attempt_id else [mark]
        trace = f"{self.home}/attempts/{attempt_id or ''}".encode()
        born = process_start_time(pid)
        if born is None or not is_running(pid, born):
            return False
        # What a process was born with: a wrapper is known by its arguments, all others by their environment.
        if any(word in _read(f"/proc/{pid}/environ") for word in words):
            return True
        arguments = _read(f"/proc/{pid}/cmdline").split(b"\0")
        return any(argument == trace or (not attempt_id and argument.startswith(trace)) for argument in arguments)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def _read(path: str) -> bytes:
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError:
        return b""
