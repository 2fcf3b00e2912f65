"""The server process of this machine: status, start in the background, stop."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from heliostat.config import Home
from heliostat.errors import Forbidden, HeliostatError

if TYPE_CHECKING:
    from heliostat.client.api_types import ServerStatus

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0


class StartedServer(NamedTuple):
    status: "ServerStatus"
    started_by_us: bool  # False: another process had started it first


def read_server_status(home: Home) -> "ServerStatus | None":
    """The status of the server of this home; None if it does not respond."""
    from heliostat.client import Client

    try:
        with Client(home=home.path) as client:
            return client.status(timeout=5)
    except HeliostatError as error:
        if error.status == 0:
            return None
        raise


def start_server_in_background(home: Home, options: dict[str, Any]) -> StartedServer:
    """Returns when the server responds. Raises with the end of its log if it does not start."""
    process = _spawn(home, options)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        if status := read_server_status(home):
            return StartedServer(status, status["pid"] == process.pid)
        if ended:
            raise HeliostatError(f"Heliostat did not start: {_last_error(home)}", f"Its log: {home.server_log}")
        time.sleep(0.05)
    message = f"Heliostat does not respond after {_START_SECONDS:.0f} s: {_last_error(home)}"
    raise HeliostatError(message, f"Its log: {home.server_log}")


def stop_server(home: Home) -> int | None:
    """The process that was stopped; None if none was running."""
    pid = running_server_pid(home)
    if pid is None:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if running_server_pid(home) != pid:  # it has ended, and another process may have its pid now
            return None
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        _wait_gone(handle, pid)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise _not_owner(pid) from error
    finally:
        os.close(handle)
    return pid


def running_server_pid(home: Home) -> int | None:
    """The process that wrote the status file, if it still has the lock file open."""
    try:
        pid = int(json.loads(home.status_file.read_text(encoding="utf-8"))["pid"])
        lock = home.lock_file.stat()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError as error:
        raise _not_owner(pid) from error
    except FileNotFoundError:
        return None
    return pid if any(_is_file(f"/proc/{pid}/fd/{number}", lock) for number in descriptors) else None


def _spawn(home: Home, options: dict[str, Any]) -> "subprocess.Popen[bytes]":
    home.path.mkdir(parents=True, exist_ok=True)
    with open(home.server_log, "ab", opener=_private) as log:
        return subprocess.Popen(
            [sys.executable, "-m", "heliostat.cli.background_server", json.dumps(options)],
            cwd="/",
            env={**os.environ, "HELIOSTAT_HOME": str(home.path), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _last_error(home: Home) -> str:
    """The last lines of its log, from the last error message on if there is one."""
    try:
        lines = home.server_log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "there is no log."
    last = [line for line in lines[-4:] if line.strip()]
    errors = [at for at, line in enumerate(last) if line.startswith("helio: ")]
    last = last[errors[-1] :] if errors else last
    return " / ".join(last).removeprefix("helio: ") or "its log is empty."


def _wait_gone(handle: int, pid: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(_STOP_SECONDS * 1000):
        raise HeliostatError(
            f"Process {pid} is still stopping.", f"If it does not end: kill -9 {pid}. Running jobs continue."
        )


def _is_file(path: str, expected: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), expected)
    except OSError:
        return False


def _not_owner(pid: int) -> Forbidden:
    return Forbidden(f"The server process {pid} belongs to another user.", "Stop it as that user.")
