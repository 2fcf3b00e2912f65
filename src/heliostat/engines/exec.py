"""A further command inside a running attempt: what an engine says to start for it, and the script that becomes it.

The environment of a job may hold secrets, and names like LD_PRELOAD: it is set by this script, which runs as the
job's user where the job runs, never by a program that runs before.
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
    """A program to start in a session of its own. What its descriptors and files hold is let go by `close`."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    inherited_descriptors: tuple[int, ...] = ()  # under these numbers
    close: Callable[[], None] = _nothing
    terminal_owner_uid: int | None = None  # the uid its terminal is to belong to; None: ours


def render_exec_script(environment: Mapping[str, str], workdir: str, command: Sequence[str], *more: str) -> str:
    """No command is a shell. `more` are lines of the shell after those that set the environment."""
    lines = [
        "umask 022",
        *(f"export {name}={quote(value)}" for name, value in environment.items()),
        *more,
        f"cd -- {quote(workdir)} || exit 126",
        f"exec {' '.join(quote(word) for word in command) or _SHELL}",
    ]
    return "\n".join(lines) + "\n"


def setpriv_argv(person: RunAsUser) -> tuple[str, ...]:
    """What to put before a program so that it runs as them; nothing, if we are them."""
    if person.uid == os.geteuid():
        return ()
    identity = (f"--reuid={person.uid}", f"--regid={person.gid}", "--init-groups", "--inh-caps=-all")
    return ("/usr/bin/setpriv", *identity)


def terminal_variables(kind: str) -> dict[str, str]:
    """The variables that tell a program what it can do there."""
    return {"TERM": kind} if kind else {}
