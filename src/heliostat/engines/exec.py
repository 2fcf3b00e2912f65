"""`helio exec`: the program an engine starts to run another command in a running attempt, and its script.

The environment of a job may hold secrets, and names like LD_PRELOAD. So only this script sets it, which runs as
the job's user on the job's node; the programs that run before it do not get it.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from shlex import quote

from heliostat.engines.job_variables import RunAsUser

_SHELL = '"${SHELL:-/bin/sh}"'


def _nothing() -> None: ...


@dataclass(frozen=True, slots=True)
class ExecCommand:
    """A program to start in a new session. `close` releases its descriptors and files."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited_descriptors: tuple[int, ...] = ()  # they keep their numbers
    close: Callable[[], None] = _nothing
    terminal_owner_uid: int | None = None  # None: the server's own uid


def render_exec_script(environment: Mapping[str, str], workdir: str, command: Sequence[str], *more: str) -> str:
    """Without a command, a shell is started. `more`: shell lines after those that set the environment."""
    lines = [
        "umask 022",
        *(f"export {name}={quote(value)}" for name, value in environment.items()),
        *more,
        f"cd -- {quote(workdir)} || exit 126",
        f"exec {' '.join(quote(word) for word in command) or _SHELL}",
    ]
    return "\n".join(lines) + "\n"


def setpriv_argv(run_as: RunAsUser) -> tuple[str, ...]:
    """The command prefix that switches to this user; empty if the server runs as this user."""
    if run_as.uid == os.geteuid():
        return ()
    identity = (f"--reuid={run_as.uid}", f"--regid={run_as.gid}", "--init-groups", "--inh-caps=-all")
    return ("/usr/bin/setpriv", *identity)


def terminal_variables(kind: str) -> dict[str, str]:
    """The environment variables for a terminal of this kind."""
    return {"TERM": kind} if kind else {}
