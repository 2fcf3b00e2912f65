"""What a job finds in its container, and how a further command enters it, on any engine.

Pure, but for links that are followed.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from heliostat.config import Settings
from heliostat.engines.job_folders import AttemptRefused
from heliostat.engines.job_variables import (
    IMAGE_DIGEST_FILE,
    RunAsUser,
    built_image_path,
    job_environment_folder,
    workflow_mounts,
)
from heliostat.engines.launch_templates import launch_prefix
from heliostat.errors import Invalid
from heliostat.models import Attempt, Mount
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.runtimes.container_policy import (
    JobOwner,
    make_container_policy,
    resolve_container_request,
    resolve_mounts,
)
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerIsolation,
    ContainerLimits,
    ContainerSpec,
    ContainerTask,
    ContainerUser,
    ContainerVariables,
)
from heliostat.runtimes.shell_lines import has_placeholder, quote_word

_FROM_THE_IMAGE = ("PATH", "SHELL")
CONTAINER_CONFIG_FILES = {
    "CONTAINERS_CONF": "/etc/containers/containers.conf",
    "CONTAINERS_REGISTRIES_CONF": "/etc/containers/registries.conf",
}

_ENTERED = ("podman", "bubblewrap")


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What a job brings along."""

    workdir: str
    checkpoint_folder: str
    script_path: str | None  # a copy of the submitted script
    variables: Mapping[str, str]  # as a plain job has them, without its own


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """What it finds there."""

    settings: Settings
    limits: ContainerLimits
    confinement: ContainerIsolation


def check_container_policy(attempt: Attempt, person: RunAsUser, settings: Settings) -> None:
    """Those of the admins may have changed since it was submitted, and so may the links in its paths."""
    if attempt.job.kind in INTERNAL_JOB_KINDS:  # which have rules of their own
        return
    try:
        resolve_container_request(
            attempt.job.spec, _asker(attempt, person), make_container_policy(settings), is_own=_is_own(attempt)
        )
    except Invalid as error:
        raise AttemptRefused(f"{error.message} {error.hint or ''}".strip()) from None


def make_container_spec(
    attempt: Attempt, person: RunAsUser, brought: ContainerInputs, ground: ContainerContext
) -> ContainerSpec:
    """As if it had one task and no devices. Raises Invalid."""
    spec = attempt.job.spec
    rules = make_container_policy(ground.settings)
    allowed = resolve_mounts(spec, _asker(attempt, person), rules, is_own=_is_own(attempt))
    mounts = (*allowed, *_own_mounts(attempt, brought, str(ground.settings.home.path)))
    variables = _variables(attempt, person, brought, mounts)
    words = spec.command if brought.script_path is None else (brought.script_path, *spec.command)
    return ContainerSpec(
        task=ContainerTask(
            launch_prefix(attempt.job).apply_to(words),
            brought.workdir,
            ContainerUser(person.name, person.uid, person.gid, person.home),
            spec.image,
            spec.network or "host",
            built_image_path(attempt.job, str(ground.settings.home.path)),
            f"{brought.checkpoint_folder}/{IMAGE_DIGEST_FILE}" if spec.image is not None else None,
        ),
        variables=ContainerVariables(
            {name: value for name, value in variables.items() if not has_placeholder(value)},
            {name: value for name, value in variables.items() if has_placeholder(value)},
        ),
        mounts=mounts,
        devices=(),
        limits=ground.limits,
        isolation=ground.confinement,
    )


def _asker(attempt: Attempt, person: RunAsUser) -> JobOwner:
    return JobOwner(attempt.job.user, person.home, attempt.job.project)


def _is_own(attempt: Attempt) -> bool:
    """Whether its image was built here: nothing else has both."""
    return attempt.job.spec.image is not None and attempt.job.environment is not None


def _own_mounts(attempt: Attempt, brought: ContainerInputs, installation: str) -> list[Mount]:
    """Of the job's own folder, and its software, which nobody needs to be asked for."""
    mounts = [Mount(brought.checkpoint_folder, brought.checkpoint_folder)]
    if attempt.job.spec.workdir is None:
        mounts.append(Mount(brought.workdir, brought.workdir))
    if folder := job_environment_folder(attempt.job, installation):
        mounts.append(Mount(folder, folder, read_only=True))
    mounts += workflow_mounts(attempt.job, installation)
    if brought.script_path is not None:
        mounts.append(Mount(brought.script_path, brought.script_path, read_only=True))
    return mounts


def _variables(
    attempt: Attempt, person: RunAsUser, brought: ContainerInputs, mounts: Sequence[Mount]
) -> dict[str, str]:
    spec = attempt.job.spec
    variables = dict(brought.variables)
    if not any(person.home == mount.target or person.home.startswith(f"{mount.target}/") for mount in mounts):
        variables["HOME"] = brought.workdir
    for name in _FROM_THE_IMAGE if spec.image is not None else ():
        variables.pop(name, None)
    return variables | dict(spec.env)


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """Where a container is entered. Each may be left blank for the script to know."""

    runtime_folder: str  # in which its tool keeps what it knows of it
    storage_root: str  # podman's store
    init_pid: str  # the first process inside, or one outside that it descends from
    workdir: str  # inside
    terminal_type: str = ""  # what kind it is; none, if empty


def container_enter_script(attempt: Attempt, door: ExecTarget, command: Sequence[str], *before: str) -> str:
    """No command is a shell. Raises Refused. `before` are lines of the shell that fill in what was left blank."""
    runtime = attempt.job.spec.runtime or ""
    if runtime not in _ENTERED:
        raise AttemptRefused(f"it runs in a container of {runtime}, which helio exec cannot enter yet")
    place = (
        door.runtime_folder,
        door.storage_root,
        door.init_pid,
        secrets.token_hex(8),
        door.terminal_type,
        door.workdir,
    )
    words = (runtime, *place, *(command or ("/bin/sh",)))
    lines = [
        "umask 022",
        f"export PATH={TOOL_PATH}",
        *before,
        f"set -- {' '.join(map(quote_word, words))}",
        _text(),
    ]
    return "\n".join(lines) + "\n"


@cache
def _text() -> str:
    return Path(__file__).with_name("container_exec.sh").read_text(encoding="utf-8").rstrip()
