"""What a job finds in its container, and how a further command enters it, on any engine.

Pure, but for links that are followed.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.environment import IMAGE_FILE, Person, own_image, own_software, workflow_mounts
from heliostat.engines.folders import Refused
from heliostat.engines.templates import start_of
from heliostat.errors import Invalid
from heliostat.models import Attempt, Mount
from heliostat.models.environments import OUR_SCRIPTS
from heliostat.runtimes.contract import TOOL_PATH, Confinement, Container, Environment, Identity, Limits, Task
from heliostat.runtimes.policy import Asker, admitted, admitted_mounts, rules_of
from heliostat.runtimes.shell import has_blank, quoted

_FROM_THE_IMAGE = ("PATH", "SHELL")
CONFIGURATION = {
    "CONTAINERS_CONF": "/etc/containers/containers.conf",
    "CONTAINERS_REGISTRIES_CONF": "/etc/containers/registries.conf",
}

_ENTERED = ("podman", "bubblewrap")


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a job brings along."""

    workdir: str
    checkpoints: str
    script: str | None  # a copy of the submitted script
    variables: Mapping[str, str]  # as a plain job has them, without its own


@dataclass(frozen=True, slots=True)
class Ground:
    """What it finds there."""

    settings: Settings
    limits: Limits
    confinement: Confinement


def check_rules(attempt: Attempt, person: Person, settings: Settings) -> None:
    """Those of the admins may have changed since it was submitted, and so may the links in its paths."""
    if attempt.job.kind in OUR_SCRIPTS:  # which have rules of their own
        return
    try:
        admitted(attempt.job.spec, _asker(attempt, person), rules_of(settings), is_own=_is_own(attempt))
    except Invalid as error:
        raise Refused(f"{error.message} {error.hint or ''}".strip()) from None


def container_of(attempt: Attempt, person: Person, brought: Belongings, ground: Ground) -> Container:
    """As if it had one task and no devices. Raises Invalid."""
    spec = attempt.job.spec
    rules = rules_of(ground.settings)
    allowed = admitted_mounts(spec, _asker(attempt, person), rules, is_own=_is_own(attempt))
    mounts = (*allowed, *_own_mounts(attempt, brought, str(ground.settings.home.path)))
    variables = _variables(attempt, person, brought, mounts)
    words = spec.command if brought.script is None else (brought.script, *spec.command)
    return Container(
        task=Task(
            start_of(attempt.job).of(words),
            brought.workdir,
            Identity(person.name, person.uid, person.gid, person.home),
            spec.image,
            spec.network or "host",
            own_image(attempt.job, str(ground.settings.home.path)),
            f"{brought.checkpoints}/{IMAGE_FILE}" if spec.image is not None else None,
        ),
        environment=Environment(
            {name: value for name, value in variables.items() if not has_blank(value)},
            {name: value for name, value in variables.items() if has_blank(value)},
        ),
        mounts=mounts,
        devices=(),
        limits=ground.limits,
        confinement=ground.confinement,
    )


def _asker(attempt: Attempt, person: Person) -> Asker:
    return Asker(attempt.job.user, person.home, attempt.job.project)


def _is_own(attempt: Attempt) -> bool:
    """Whether its image was built here: nothing else has both."""
    return attempt.job.spec.image is not None and attempt.job.environment is not None


def _own_mounts(attempt: Attempt, brought: Belongings, installation: str) -> list[Mount]:
    """Of the job's own folder, and its software, which nobody needs to be asked for."""
    mounts = [Mount(brought.checkpoints, brought.checkpoints)]
    if attempt.job.spec.workdir is None:
        mounts.append(Mount(brought.workdir, brought.workdir))
    if folder := own_software(attempt.job, installation):
        mounts.append(Mount(folder, folder, read_only=True))
    mounts += workflow_mounts(attempt.job, installation)
    if brought.script is not None:
        mounts.append(Mount(brought.script, brought.script, read_only=True))
    return mounts


def _variables(attempt: Attempt, person: Person, brought: Belongings, mounts: Sequence[Mount]) -> dict[str, str]:
    spec = attempt.job.spec
    variables = dict(brought.variables)
    if not any(person.home == mount.target or person.home.startswith(f"{mount.target}/") for mount in mounts):
        variables["HOME"] = brought.workdir
    for name in _FROM_THE_IMAGE if spec.image is not None else ():
        variables.pop(name, None)
    return variables | dict(spec.env)


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
