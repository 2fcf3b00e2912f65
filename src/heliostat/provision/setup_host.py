"""The host that is set up: runs commands, installs packages, starts daemons and waits for them."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliostat.errors import Conflict, EngineUnavailable

START_TIMEOUT_SECONDS = 90
_COMMAND_SECONDS = 120
_INSTALL_SECONDS = 1800
_NOT_RUNNING = "is not running"
_RETRY_HINT = "Fix the problem and repeat this command: it continues where it stopped."


@dataclass(frozen=True)
class Daemon:
    name: str
    unit: str
    command: tuple[str, ...]  # in the foreground


class SetupHost:
    """With a prefix, or without systemd, it starts no daemons: its errors contain the commands to run."""

    def __init__(
        self,
        prefix: str = "",
        environment: Mapping[str, str] | None = None,
        answer_seconds: float = START_TIMEOUT_SECONDS,
    ) -> None:
        """`environment`: more variables for the commands."""
        self._answer_seconds = answer_seconds
        path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
        self.has_systemd = not prefix and Path("/run/systemd/system").is_dir()
        self._environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8", **(environment or {})}

    def missing_packages(self, packages: Mapping[str, str]) -> list[str]:
        """The packages whose program is not installed."""
        path = self._environment["PATH"]
        return sorted(package for program, package in packages.items() if shutil.which(program, path=path) is None)

    def install(self, packages: Sequence[str]) -> None:
        """Continues if the package lists cannot be updated: the existing ones may suffice."""
        command = ["apt-get", "-q", "-y", "install", "--no-install-recommends", *packages]
        self._environment["DEBIAN_FRONTEND"] = "noninteractive"
        self.try_run(["apt-get", "-q", "update"], seconds=_COMMAND_SECONDS)
        self.run(command, seconds=_INSTALL_SECONDS)

    def run(
        self, argv: Sequence[str], text: str = "", *, secret: str = "", seconds: float = _COMMAND_SECONDS
    ) -> str:
        """Returns its output. Secrets are passed in `text`, its standard input, and removed from errors."""
        try:
            done = subprocess.run(
                list(argv),
                input=text,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineUnavailable(f"{argv[0]} could not be run: {type(error).__name__}.", _RETRY_HINT) from error
        if done.returncode:
            lines = (done.stderr or done.stdout).strip().splitlines()
            message = lines[-1] if lines else f"failed without a message (exit code {done.returncode})"
            message = message.replace(secret, "…") if secret else message
            raise EngineUnavailable(f"{argv[0]}: {message}", _RETRY_HINT)
        return done.stdout

    def try_run(self, argv: Sequence[str], text: str = "", *, seconds: float = 30) -> str | None:
        """Returns its output; None if it fails."""
        try:
            return self.run(argv, text, seconds=seconds)
        except EngineUnavailable:
            return None

    def start_command(self, daemon: Daemon) -> str:
        return f"systemctl enable --now {daemon.unit}" if self.has_systemd else shlex.join(daemon.command)

    def start_daemon(self, daemon: Daemon, is_up: Callable[[], bool], problem: str = _NOT_RUNNING) -> str:
        """Returns a message when it is up. Without systemd raises Conflict, with the command to run."""
        if not self.has_systemd:
            line = self.start_command(daemon)
            verb = "Start" if problem == _NOT_RUNNING else "Restart"
            raise Conflict(
                f"{daemon.name} {problem}, and there is no systemd to start it.",
                f"{verb} it with the following command, then repeat this one: {line}",
                fields={"start": line},
            )
        self.run(["systemctl", "daemon-reload"])
        self.run(["systemctl", "enable", daemon.unit])
        self.run(["systemctl", "restart", daemon.unit])
        deadline = time.monotonic() + self._answer_seconds
        while not is_up():
            if time.monotonic() > deadline:
                hint = f"See `journalctl -u {daemon.unit}` and its log in /var/log, then repeat this command."
                raise EngineUnavailable(f"{daemon.name} was started but does not respond.", hint)
            time.sleep(0.5)
        return f"Started {daemon.name}."
