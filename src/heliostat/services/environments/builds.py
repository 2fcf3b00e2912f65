"""Who builds an environment, with what, and the job that does it."""

import contextlib
import os
import platform
import pwd
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import Home
from heliostat.controller.environment_installation import create_environment_folders
from heliostat.engines.job_variables import environment_folder
from heliostat.errors import Conflict, HeliostatError, Invalid
from heliostat.models import Job, JobSpec, JobState, Resources
from heliostat.models.environments import ENVIRONMENT_BUILD_JOB, EnvironmentSpec, environment_digest
from heliostat.runtimes.contract import TOOL_PATH
from heliostat.runtimes.environment_build import EnvironmentRecipe, render_environment_build
from heliostat.services.context import Context

_CPUS, _MEMORY_MIB = 2, 4096  # of a build, where a node has as much
_LIMIT_SECONDS = 2 * 3600
_RETRIES = 2  # when its node dies


@dataclass(frozen=True, slots=True)
class BuildIdentity:
    """Whom a build runs as, and whose its result is."""

    unix_user: str
    owner: str | None  # a user; None: everybody's
    cache_folder: str | None  # shared by all builds; None: the one of that Unix user


def choose_build_identity(context: Context, user: str, unix_user: str) -> BuildIdentity:
    """A Unix user of its own, so that nobody can touch what everybody shares; without one, each for themselves."""
    settings = context.settings
    is_here = os.geteuid() == 0 and context.engine.capabilities.runs_on_server_host
    if not is_here or shutil.which("bwrap", path=TOOL_PATH) is None:
        return BuildIdentity(unix_user, user, None)
    try:
        account = pwd.getpwnam(settings.environments.builder)
    except KeyError:
        return BuildIdentity(unix_user, user, None)
    if account.pw_uid == 0:
        return BuildIdentity(unix_user, user, None)
    cache = settings.home.environments / "cache"
    create_environment_folders(settings.home)
    cache.mkdir(exist_ok=True)
    os.chown(cache, account.pw_uid, account.pw_gid, follow_symlinks=False)
    cache.chmod(0o700)
    return BuildIdentity(account.pw_name, None, str(cache))


def resolve_python(software: EnvironmentSpec) -> EnvironmentSpec:
    """With its Python, which is one of this machine. Raises Invalid."""
    if software.kind == "conda":
        return software
    found = installed_pythons()
    wanted = software.python or _usual(found)
    if wanted is None or wanted not in found:
        known = ", ".join(found) or "none"
        raise Invalid(
            f"There is no Python {wanted or '3'} on this machine.",
            f"Versions here: {known}. An admin can install others, or use a conda file.",
            fields={"python": f"must be one of: {known}"},
        )
    return EnvironmentSpec(software.kind, software.files, wanted)


def installed_pythons() -> dict[str, str]:
    """Version and path of those that every job finds, oldest first."""
    found: dict[str, str] = {}
    for folder in TOOL_PATH.split(":"):
        with contextlib.suppress(OSError):
            names = (re.fullmatch(r"python(3\.\d+)", name) for name in os.listdir(folder))
            found |= {match[1]: f"{folder}/{match[0]}" for match in names if match and match[1] not in found}
    return dict(sorted(found.items(), key=lambda one: int(one[0].partition(".")[2])))


def _usual(found: dict[str, str]) -> str | None:
    """What `python3` means here."""
    real = os.path.realpath(shutil.which("python3", path=TOOL_PATH) or "")
    return next((version for version, path in found.items() if os.path.realpath(path) == real), None)


def current_platform() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()


def digest_for_builder(software: EnvironmentSpec, builder: BuildIdentity) -> str:
    return environment_digest(software, current_platform(), builder.owner)


def draft_build_job(
    context: Context, asker: tuple[str, str], software: EnvironmentSpec, builder: BuildIdentity
) -> Job:
    """The job that builds it, but for its number, for this user and project."""
    user, project = asker
    digest = digest_for_builder(software, builder)
    return Job(
        id=0,
        kind=ENVIRONMENT_BUILD_JOB,
        name=f"environment {digest[:12]}",
        state=JobState.PENDING,
        user=user,
        unix_user=builder.unix_user,
        project=project,
        resources=build_resources(context),
        spec=JobSpec(script=render_environment_build(_recipe(context, software, builder, digest))),
        submitted_at=context.now(),
        time_limit_seconds=min(_LIMIT_SECONDS, context.settings.queue.max_time_limit_seconds),
        max_retries=_RETRIES,
        environment=digest,
    )


def _recipe(context: Context, software: EnvironmentSpec, builder: BuildIdentity, digest: str) -> EnvironmentRecipe:
    home = context.settings.home
    return EnvironmentRecipe(
        spec=software,
        tool_path=_tool(home, "micromamba" if software.kind == "conda" else "uv"),
        python_path=installed_pythons().get(software.python or "", ""),
        install_folder=environment_folder(str(home.path), digest),
        variables=context.settings.environments.uv_variables,
        shared_cache=builder.cache_folder,
    )


def build_resources(context: Context) -> Resources:
    """Of a build, where a node has as much."""
    nodes = context.node_inventory.nodes()
    cpus = min(_CPUS, max((node.cpus for node in nodes), default=_CPUS))
    memory = min(_MEMORY_MIB, max((node.memory_mib for node in nodes), default=_MEMORY_MIB))
    return Resources(cpus, memory)


def _tool(home: Home, name: str) -> str:
    """A copy that whoever builds can run, wherever the original is. Raises Conflict when there is none."""
    found = _find_uv() if name == "uv" else shutil.which(name, path=TOOL_PATH)
    if found is None:
        raise _missing(name)
    create_environment_folders(home)
    copy = home.environments / "tools" / name
    try:
        if not _is_same(Path(found), copy):
            draft = copy.with_name(f"{name}.{os.urandom(4).hex()}")
            shutil.copy2(found, draft)
            draft.chmod(0o755)
            draft.replace(copy)
    except OSError as error:
        raise HeliostatError(
            f"{name} cannot be copied to {copy}: {error.strerror}.", "See the data directory: `helio doctor`."
        ) from error
    return str(copy)


def _is_same(one: Path, other: Path) -> bool:
    if not other.exists():
        return False
    a, b = one.stat(), other.stat()
    return (a.st_size, int(a.st_mtime)) == (b.st_size, int(b.st_mtime))


def _find_uv() -> str | None:
    """A program of this machine, or the one that came with us: `pip install heliostat[environments]`."""
    if found := shutil.which("uv", path=TOOL_PATH):
        return found
    try:
        from uv import find_uv_bin
    except ImportError:
        return None
    with contextlib.suppress(FileNotFoundError):
        return str(find_uv_bin())
    return None


def _missing(name: str) -> Conflict:
    if name == "uv":
        return Conflict(
            "uv, which builds environments, is not installed on the server.",
            "An admin can install it: pip install 'heliostat[environments]', or put uv into /usr/local/bin.",
            code="no_builder",
        )
    return Conflict(
        "micromamba, which builds conda environments, is not installed on the server.",
        "Send requirements.txt or pyproject.toml, or ask an admin to put micromamba into /usr/local/bin.",
        code="no_builder",
    )
