"""The machine on which a Slurm is set up: asks and starts its programs; waits until they answer."""

import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from heliostat.errors import Conflict, EngineUnavailable
from heliostat.provision.slurm.daemons import Daemon
from heliostat.provision.slurm.paths import SlurmPaths

START_TIMEOUT_SECONDS = 90
_COMMAND_SECONDS = 120
_INSTALL_SECONDS = 1800


class SetupHost:
    """Below a folder, or without systemd, it starts nothing: it says what to start."""

    def __init__(self, layout: SlurmPaths, answer_seconds: float = START_TIMEOUT_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        path = f"{os.environ.get('PATH', '')}:/usr/local/sbin:/usr/sbin:/sbin"
        self.has_systemd = not layout.prefix and Path("/run/systemd/system").is_dir()
        self._environment = {**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"}
        if layout.prefix:
            self._environment["SLURM_CONF"] = layout.slurm_conf

    def missing_packages(self, packages: Mapping[str, str]) -> list[str]:
        """The packages whose program is not here."""
        path = self._environment["PATH"]
        return sorted(package for program, package in packages.items() if shutil.which(program, path=path) is None)

    def install(self, packages: Sequence[str]) -> None:
        """Lists that cannot be had anew may do."""
        words = ["apt-get", "-q", "-y", "install", "--no-install-recommends", *packages]
        self._environment["DEBIAN_FRONTEND"] = "noninteractive"
        self.try_run(["apt-get", "-q", "update"], seconds=_COMMAND_SECONDS)
        self.run(words, seconds=_INSTALL_SECONDS)

    def run(
        self, words: Sequence[str], text: str = "", *, secret: str = "", seconds: float = _COMMAND_SECONDS
    ) -> str:
        """To its end; its output. What is secret goes through `text`, its standard input, and is in no error."""
        try:
            done = subprocess.run(
                list(words),
                input=text,
                env=self._environment,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise EngineUnavailable(f"{words[0]} could not be run: {type(error).__name__}.", _again()) from error
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["failed without a word"]
            told = said[-1].replace(secret, "…") if secret else said[-1]
            raise EngineUnavailable(f"{words[0]}: {told}", _again())
        return done.stdout

    def try_run(self, words: Sequence[str], text: str = "", *, seconds: float = 30) -> str | None:
        """Its output, or None if it fails."""
        try:
            return self.run(words, text, seconds=seconds)
        except EngineUnavailable:
            return None

    def start_command(self, daemon: Daemon) -> str:
        """A command line."""
        return f"systemctl enable --now {daemon.unit}" if self.has_systemd else shlex.join(daemon.command)

    def start_daemon(self, daemon: Daemon, is_up: Callable[[], bool], why: str = "does not run") -> str:
        """Until it is up. Without systemd raises Conflict, with the command line."""
        if not self.has_systemd:
            line = self.start_command(daemon)
            verb = "Start" if why == "does not run" else "Restart"
            raise Conflict(
                f"{daemon.name} {why}, and there is no systemd to start it.",
                f"{verb} it, and repeat this command, which goes on from there: {line}",
                fields={"start": line},
            )
        self.run(["systemctl", "daemon-reload"])
        self.run(["systemctl", "enable", daemon.unit])
        self.run(["systemctl", "restart", daemon.unit])
        deadline = time.monotonic() + self._answer_seconds
        while not is_up():
            if time.monotonic() > deadline:
                hint = f"See `journalctl -u {daemon.unit}` and its log in /var/log, and repeat this command."
                raise EngineUnavailable(f"{daemon.name} was started and does not answer.", hint)
            time.sleep(0.5)
        return f"Started {daemon.name}."


def _again() -> str:
    return "Fix it and repeat this command: it goes on where it stopped."
