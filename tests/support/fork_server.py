"""Processes that have read Heliostat already: for a test that needs a server, and not to see one start.

An interpreter of its own spends seconds on reading Heliostat and all it stands on, for each of the hundreds of
servers of a run. So one process per test process reads it once, and forks for each server. That is a process of
its own all the same: environment, open files and end are its own, and it can be killed. What only an interpreter
can be given at its birth (a user, another Python, an environment to hide or to load from) needs a real start.

What each server would work out for itself again is ready as well: its routes, its templates, and a new database.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

_MOST_BYTES = 1 << 20
_READ_LATER = ("HELIOSTAT_", "SLURM_", "PYTEST_")  # what of the environment matters only after Heliostat is read
_READ_BEFORE = (
    *("heliostat.server", "heliostat.engines.local.engine", "heliostat.engines.simulated.engine"),
    *("heliostat.engines.simulated.cluster", "heliostat.engines.slurm.engine", "alembic.command"),
)


class ForkedProcess:
    """Speaks as `subprocess.Popen` does."""

    def __init__(self, maker: "_Maker", pid: int) -> None:
        self._maker, self.pid = maker, pid
        self._gone = os.pidfd_open(pid)
        self._reaping = threading.Lock()
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        with self._reaping:
            if self.returncode is None:
                if not select.select([self._gone], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
                self.returncode = self._maker.reap(self.pid)
                os.close(self._gone)
            return self.returncode

    def send_signal(self, number: int) -> None:
        with self._reaping:
            if self.returncode is None:  # until it is reaped, nobody else has its number
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def can_fork_with(environ: Mapping[str, str]) -> bool:
    """Whether it differs from ours only in what a ready-made process may be told later."""
    differing = {name for name, _ in environ.items() ^ os.environ.items()}
    return all(name.startswith(_READ_LATER) for name in differing)


def fork_process(code: str, environ: Mapping[str, str], log: int, *, own_session: bool = False) -> ForkedProcess:
    """A process in `/` that runs this code, with nothing to read and `log` to write to."""
    return _maker().make({"code": code, "environ": dict(environ), "own_session": own_session}, log)


@functools.cache
def _maker() -> "_Maker":
    return _Maker()


class _Maker:
    """The process that has read Heliostat, seen from here. It ends when we do."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # who forks must have one thread
        command = [sys.executable, "-P", __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(
            command, pass_fds=[theirs.fileno()], env=environ, stdin=subprocess.DEVNULL, cwd="/"
        )
        theirs.close()
        self._socket, self._talking = ours, threading.Lock()
        atexit.register(self._close)

    def make(self, order: dict[str, Any], log: int) -> ForkedProcess:
        return ForkedProcess(self, self._ask(order, log))

    def reap(self, pid: int) -> int:
        return self._ask({"reap": pid})

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()

    def _ask(self, order: dict[str, Any], *files: int) -> int:
        with self._talking:
            socket.send_fds(self._socket, [json.dumps(order).encode()], list(files))
            answer = self._socket.recv(_MOST_BYTES)
        assert answer, "the process that makes servers has ended"
        return cast("int", json.loads(answer))


def _make_for(orders: socket.socket) -> dict[str, Any] | None:
    """Forks at each order. Returns one in the new process, and nothing in this one once nobody orders any more."""
    while True:
        message, files, _, _ = socket.recv_fds(orders, _MOST_BYTES, 1)
        if not message:
            return None
        order: dict[str, Any] = json.loads(message)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            orders.send(json.dumps(os.waitstatus_to_exitcode(status)).encode())
            continue
        if (pid := os.fork()) == 0:
            orders.close()
            _settle(order, files[0])
            return order
        os.close(files[0])
        orders.send(json.dumps(pid).encode())


def _settle(order: dict[str, Any], log: int) -> None:
    if order["own_session"]:
        os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.clear()
    os.environ.update(order["environ"])
    time.tzset()


def _end_quickly() -> None:
    """As an interpreter ends, but without giving its memory back piece by piece, which takes most of a second."""
    threading._shutdown()  # type: ignore[attr-defined]  # waits for threads
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _read() -> None:
    for name in _READ_BEFORE:
        importlib.import_module(name)
    for route in sys.modules["heliostat.api.app"].all_routes():
        route.matches({"type": "http", "method": "GET", "path": "/", "headers": []})
    templates = sys.modules["heliostat.web.rendering"].template_environment()
    for name in templates.list_templates():
        templates.get_template(name)
    server = sys.modules["heliostat.server"]
    server.migrate = _quicker(server.migrate)
    gc.collect()
    gc.freeze()  # or the first to look for garbage would touch, and so copy, all of it


def _quicker(migrate: Callable[[Path], None]) -> Callable[[Path], None]:
    """Writes a new database in one go. What is there already goes from step to step, as ever."""
    with tempfile.TemporaryDirectory() as folder:
        migrate(made := Path(folder) / "new.db")
        new = made.read_bytes()

    def begin_or_migrate(path: Path) -> None:
        if not path.exists():
            path.write_bytes(new)
        migrate(path)

    return begin_or_migrate


if __name__ == "__main__":
    _read()
    assert len(os.listdir("/proc/self/task")) == 1, "a thread would be missing in each process made"
    ordered = _make_for(socket.socket(fileno=int(sys.argv.pop())))
    if ordered:
        sys.argv = ["-c"]
        exec(ordered["code"], {"__name__": "__main__"})
        _end_quickly()
