"""The server as a process: is it there, start it, stop it."""

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
    started_by_us: bool  # not by someone who was faster


def read_server_status(home: Home) -> "ServerStatus | None":
    """What the server of this home says of itself; None when nobody answers."""
    from heliostat.client import Client

    try:
        with Client(home=home.path) as client:
            return client.status(timeout=5)
    except HeliostatError as error:
        if error.status == 0:
            return None
        raise


def start_server_in_background(home: Home, options: dict[str, Any]) -> StartedServer:
    """Returns when it answers. Raises with the end of its log when it does not come up."""
    process = _spawn(home, options)
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        died = process.poll() is not None
        if status := read_server_status(home):
            return StartedServer(status, status["pid"] == process.pid)
        if died:
            raise HeliostatError(f"Heliostat did not start: {_last_words(home)}", f"Its log: {home.server_log}")
        time.sleep(0.05)
    silence = f"Heliostat does not answer after {_START_SECONDS:.0f} s: {_last_words(home)}"
    raise HeliostatError(silence, f"Its log: {home.server_log}")


def stop_server(home: Home) -> int | None:
    """The process that was stopped; None when none was running."""
    pid = running_server_pid(home)
    if pid is None:
        return None
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    try:
        if running_server_pid(home) != pid:  # it ended, and its number may be someone else's by now
            return None
        signal.pidfd_send_signal(handle, signal.SIGTERM)
        _wait_gone(handle, pid)
    except ProcessLookupError:
        pass
    except PermissionError as error:
        raise _not_ours(pid) from error
    finally:
        os.close(handle)
    return pid


def running_server_pid(home: Home) -> int | None:
    """The process that has written the status file, if it still holds the lock file open."""
    try:
        pid = int(json.loads(home.status_file.read_text(encoding="utf-8"))["pid"])
        lock = home.lock_file.stat()
    except (OSError, ValueError, KeyError, TypeError):
        return None
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except PermissionError as error:
        raise _not_ours(pid) from error
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


def _last_words(home: Home) -> str:
    """The last lines of its log, from its complaint on if there is one."""
    try:
        lines = home.server_log.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "it left no log."
    said = [line for line in lines[-4:] if line.strip()]
    complaints = [at for at, line in enumerate(said) if line.startswith("helio: ")]
    said = said[complaints[-1] :] if complaints else said
    return " / ".join(said).removeprefix("helio: ") or "it said nothing."


def _wait_gone(handle: int, pid: int) -> None:
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    if not poll.poll(_STOP_SECONDS * 1000):
        raise HeliostatError(f"Process {pid} is still stopping.", f"If it hangs: kill -9 {pid}; jobs go on.")


def _is_file(path: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path), wanted)
    except OSError:
        return False


def _not_ours(pid: int) -> Forbidden:
    return Forbidden(f"Process {pid}, the server, belongs to someone else.", "Stop it as its owner.")
