"""Container specifications of jobs, and the script that runs another command in a container; for all engines.

Pure, except that symbolic links are resolved.
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

_IMAGE_VARIABLES = ("PATH", "PYTHONPATH", "SHELL")
CONTAINER_CONFIG_FILES = {
    "CONTAINERS_CONF": "/etc/containers/containers.conf",
    "CONTAINERS_REGISTRIES_CONF": "/etc/containers/registries.conf",
}

_EXEC_RUNTIMES = ("podman", "bubblewrap")


@dataclass(frozen=True, slots=True)
class ContainerInputs:
    """What the job provides."""

    workdir: str
    checkpoint_folder: str
    script_path: str | None  # a copy of the submitted script
    variables: Mapping[str, str]  # those of a job without a container, without the variables that the user set


@dataclass(frozen=True, slots=True)
class ContainerContext:
    """What the node and the settings provide."""

    settings: Settings
    limits: ContainerLimits
    confinement: ContainerIsolation


def check_container_policy(attempt: Attempt, run_as: RunAsUser, settings: Settings) -> None:
    """Check again at the start: rules, and links in the job's paths, may have changed since it was submitted."""
    if attempt.job.kind in INTERNAL_JOB_KINDS:  # other rules apply to them
        return
    try:
        resolve_container_request(
            attempt.job.spec, _job_owner(attempt, run_as), make_container_policy(settings), is_own=_is_own(attempt)
        )
    except Invalid as error:
        raise AttemptRefused(f"{error.message} {error.hint or ''}".strip()) from None


def make_container_spec(
    attempt: Attempt, run_as: RunAsUser, inputs: ContainerInputs, context: ContainerContext
) -> ContainerSpec:
    """The specification for one task, without devices. Raises Invalid."""
    spec = attempt.job.spec
    policy = make_container_policy(context.settings)
    allowed = resolve_mounts(spec, _job_owner(attempt, run_as), policy, is_own=_is_own(attempt))
    mounts = (*allowed, *_job_mounts(attempt, inputs, str(context.settings.home.path)))
    variables = _variables(attempt, run_as, inputs, mounts)
    argv = spec.command if inputs.script_path is None else (inputs.script_path, *spec.command)
    return ContainerSpec(
        task=ContainerTask(
            launch_prefix(attempt.job).apply_to(argv),
            inputs.workdir,
            ContainerUser(run_as.name, run_as.uid, run_as.gid, run_as.home),
            spec.image,
            spec.network or "host",
            built_image_path(attempt.job, str(context.settings.home.path)),
            f"{inputs.checkpoint_folder}/{IMAGE_DIGEST_FILE}" if spec.image is not None else None,
        ),
        variables=ContainerVariables(
            {name: value for name, value in variables.items() if not has_placeholder(value)},
            {name: value for name, value in variables.items() if has_placeholder(value)},
        ),
        mounts=mounts,
        devices=(),
        limits=context.limits,
        isolation=context.confinement,
    )


def _job_owner(attempt: Attempt, run_as: RunAsUser) -> JobOwner:
    return JobOwner(attempt.job.user, run_as.home, attempt.job.project)


def _is_own(attempt: Attempt) -> bool:
    """Whether its image was built here: only then a job has both an image and an environment."""
    return attempt.job.spec.image is not None and attempt.job.environment is not None


def _job_mounts(attempt: Attempt, inputs: ContainerInputs, installation: str) -> list[Mount]:
    """Mounts of the job's own folder and of its environment. They need no permission."""
    mounts = [Mount(inputs.checkpoint_folder, inputs.checkpoint_folder)]
    if attempt.job.spec.workdir is None:
        mounts.append(Mount(inputs.workdir, inputs.workdir))
    if folder := job_environment_folder(attempt.job, installation):
        mounts.append(Mount(folder, folder, read_only=True))
    mounts += workflow_mounts(attempt.job, installation)
    if inputs.script_path is not None:
        mounts.append(Mount(inputs.script_path, inputs.script_path, read_only=True))
    return mounts


def _variables(
    attempt: Attempt, run_as: RunAsUser, inputs: ContainerInputs, mounts: Sequence[Mount]
) -> dict[str, str]:
    spec = attempt.job.spec
    variables = dict(inputs.variables)
    if not any(run_as.home == mount.target or run_as.home.startswith(f"{mount.target}/") for mount in mounts):
        variables["HOME"] = inputs.workdir
    for name in _IMAGE_VARIABLES if spec.image is not None else ():
        variables.pop(name, None)
    return variables | dict(spec.env)


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """A running container. Each field may be a placeholder that the script fills in."""

    runtime_folder: str  # of the container tool
    storage_root: str  # podman's store
    init_pid: str  # the first process inside, or an ancestor of it outside
    workdir: str  # inside the container
    terminal_type: str = ""  # value of TERM; empty: no terminal


def container_enter_script(attempt: Attempt, target: ExecTarget, command: Sequence[str], *before: str) -> str:
    """Without a command, a shell is started. `before`: shell lines that set the variables of placeholders.
    Raises AttemptRefused."""
    runtime = attempt.job.spec.runtime or ""
    if runtime not in _EXEC_RUNTIMES:
        raise AttemptRefused(f"it runs in a container of {runtime}, and helio exec does not support {runtime} yet")
    arguments = (
        target.runtime_folder,
        target.storage_root,
        target.init_pid,
        secrets.token_hex(8),
        target.terminal_type,
        target.workdir,
    )
    argv = (runtime, *arguments, *(command or ("/bin/sh",)))
    lines = [
        "umask 022",
        f"export PATH={TOOL_PATH}",
        *before,
        f"set -- {' '.join(map(quote_word, argv))}",
        _text(),
    ]
    return "\n".join(lines) + "\n"


@cache
def _text() -> str:
    return Path(__file__).with_name("container_exec.sh").read_text(encoding="utf-8").rstrip()
