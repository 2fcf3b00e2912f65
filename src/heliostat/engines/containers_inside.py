"""A further command in a container that runs: the script that enters it, whichever engine runs that. Pure."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliostat.engines.folders import Refused
from heliostat.models import Attempt
from heliostat.runtimes.contract import TOOL_PATH
from heliostat.runtimes.shell import quoted

_ENTERED = ("podman", "bubblewrap")


@dataclass(frozen=True, slots=True)
class Door:
    """Where a container is entered. Each may be left blank for the script to know."""

    folder: str  # in which its tool keeps what it knows of it
    root: str  # podman's store
    first: str  # the first process inside, or one outside that it descends from
    workdir: str  # inside
    terminal: str = ""  # what kind it is; none, if empty


def enter_script(attempt: Attempt, door: Door, command: Sequence[str], *before: str) -> str:
    """No command is a shell. Raises Refused. `before` are lines of the shell that fill in what was left blank."""
    runtime = attempt.job.spec.runtime or ""
    if runtime not in _ENTERED:
        raise Refused(f"it runs in a container of {runtime}, which helio exec cannot enter yet")
    place = (door.folder, door.root, door.first, secrets.token_hex(8), door.terminal, door.workdir)
    words = (runtime, *place, *(command or ("/bin/sh",)))
    lines = [
        "umask 022",
        f"export PATH={TOOL_PATH}",
        *before,
        f"set -- {' '.join(map(quoted, words))}",
        _text(),
    ]
    return "\n".join(lines) + "\n"


@cache
def _text() -> str:
    return Path(__file__).with_name("containers_inside.sh").read_text(encoding="utf-8").rstrip()
