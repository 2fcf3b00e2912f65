"""Environment builds: the Unix user, the tools, and the build job."""

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
_TIME_LIMIT_SECONDS = 2 * 3600
_RETRIES = 2  # when its node dies


@dataclass(frozen=True, slots=True)
class BuildIdentity:
    """The Unix user of a build, and the owner of its result."""

    unix_user: str
    owner: str | None  # a user; None: shared by all users
    cache_folder: str | None  # shared by all builds; None: the cache of that Unix user


def choose_build_identity(context: Context, user: str, unix_user: str) -> BuildIdentity:
    """A dedicated Unix user, so that users cannot modify shared environments; without one, each user's own."""
    account = _shared_builder(context)
    if account is None:
        return BuildIdentity(unix_user, user, None)
    home = context.settings.home
    cache = home.environments / "cache"
    create_environment_folders(home)
    cache.mkdir(exist_ok=True)
    os.chown(cache, account.pw_uid, account.pw_gid, follow_symlinks=False)
    cache.chmod(0o700)
    return BuildIdentity(account.pw_name, None, str(cache))


def are_environments_shared(context: Context) -> bool:
    """Whether all users who request the same packages use the same environment."""
    return _shared_builder(context) is not None


def _shared_builder(context: Context) -> pwd.struct_passwd | None:
    runs_as_root_here = os.geteuid() == 0 and context.engine.capabilities.runs_on_server_host
    if not runs_as_root_here or shutil.which("bwrap", path=TOOL_PATH) is None:
        return None
    try:
        account = pwd.getpwnam(context.settings.environments.builder)
    except KeyError:
        return None
    return account if account.pw_uid != 0 else None


def resolve_python(spec: EnvironmentSpec) -> EnvironmentSpec:
    """The spec with its Python version, which must be installed on this server. Raises Invalid."""
    if spec.kind == "conda":
        return spec
    pythons = installed_pythons()
    version = spec.python or _default_python(pythons)
    if version is None or version not in pythons:
        known = ", ".join(pythons) or "none"
        raise Invalid(
            f"Python {version or '3'} is not installed on this server.",
            f"Installed versions: {known}. Ask an admin to install another, or use a conda file.",
            fields={"python": f"must be one of: {known}"},
        )
    return EnvironmentSpec(spec.kind, spec.files, version)


def installed_pythons() -> dict[str, str]:
    """Version and path of the Pythons that all jobs can run, oldest first."""
    pythons: dict[str, str] = {}
    for folder in TOOL_PATH.split(":"):
        with contextlib.suppress(OSError):
            names = (re.fullmatch(r"python(3\.\d+)", name) for name in os.listdir(folder))
            pythons |= {match[1]: f"{folder}/{match[0]}" for match in names if match and match[1] not in pythons}
    return dict(sorted(pythons.items(), key=lambda item: int(item[0].partition(".")[2])))


def _default_python(pythons: dict[str, str]) -> str | None:
    """The version of `python3`."""
    real = os.path.realpath(shutil.which("python3", path=TOOL_PATH) or "")
    return next((version for version, path in pythons.items() if os.path.realpath(path) == real), None)


def current_platform() -> str:
    return f"{platform.system()}-{platform.machine()}".lower()


def digest_for_builder(spec: EnvironmentSpec, builder: BuildIdentity) -> str:
    return environment_digest(spec, current_platform(), builder.owner)


def draft_build_job(
    context: Context, user_and_project: tuple[str, str], spec: EnvironmentSpec, builder: BuildIdentity
) -> Job:
    """The build job without an id, for this user and project."""
    user, project = user_and_project
    digest = digest_for_builder(spec, builder)
    return Job(
        id=0,
        kind=ENVIRONMENT_BUILD_JOB,
        name=f"environment {digest[:12]}",
        state=JobState.PENDING,
        user=user,
        unix_user=builder.unix_user,
        project=project,
        resources=build_resources(context),
        spec=JobSpec(script=render_environment_build(_recipe(context, spec, builder, digest))),
        submitted_at=context.now(),
        time_limit_seconds=min(_TIME_LIMIT_SECONDS, context.settings.queue.max_time_limit_seconds),
        max_retries=_RETRIES,
        environment=digest,
    )


def _recipe(context: Context, spec: EnvironmentSpec, builder: BuildIdentity, digest: str) -> EnvironmentRecipe:
    home = context.settings.home
    return EnvironmentRecipe(
        spec=spec,
        tool_path=_tool(home, "micromamba" if spec.kind == "conda" else "uv"),
        python_path=installed_pythons().get(spec.python or "", ""),
        install_folder=environment_folder(str(home.path), digest),
        variables=context.settings.environments.uv_variables,
        shared_cache=builder.cache_folder,
    )


def build_resources(context: Context) -> Resources:
    """Resources of a build job, limited to the largest node."""
    nodes = context.node_inventory.nodes()
    cpus = min(_CPUS, max((node.cpus for node in nodes), default=_CPUS))
    memory = min(_MEMORY_MIB, max((node.memory_mib for node in nodes), default=_MEMORY_MIB))
    return Resources(cpus, memory)


def _tool(home: Home, name: str) -> str:
    """A copy of the program that every build user can run. Raises Conflict if it is not installed."""
    pythons = _find_uv() if name == "uv" else shutil.which(name, path=TOOL_PATH)
    if pythons is None:
        raise _not_installed_error(name)
    create_environment_folders(home)
    copy = home.environments / "tools" / name
    try:
        if not _is_same(Path(pythons), copy):
            draft = copy.with_name(f"{name}.{os.urandom(4).hex()}")
            shutil.copy2(pythons, draft)
            draft.chmod(0o755)
            draft.replace(copy)
    except OSError as error:
        raise HeliostatError(
            f"{name} cannot be copied to {copy}: {error.strerror}.", "Check the data directory: `helio doctor`."
        ) from error
    return str(copy)


def _is_same(original: Path, copy: Path) -> bool:
    if not copy.exists():
        return False
    a, b = original.stat(), copy.stat()
    return (a.st_size, int(a.st_mtime)) == (b.st_size, int(b.st_mtime))


def _find_uv() -> str | None:
    """The installed program, or the one from `pip install heliostat[environments]`."""
    if pythons := shutil.which("uv", path=TOOL_PATH):
        return pythons
    try:
        from uv import find_uv_bin
    except ImportError:
        return None
    with contextlib.suppress(FileNotFoundError):
        return str(find_uv_bin())
    return None


def _not_installed_error(name: str) -> Conflict:
    if name == "uv":
        return Conflict(
            "uv, which builds environments, is not installed on the server.",
            "An admin can install it: pip install 'heliostat[environments]', or put uv into /usr/local/bin.",
            code="no_builder",
        )
    return Conflict(
        "micromamba, which builds conda environments, is not installed on the server.",
        "Use requirements.txt or pyproject.toml, or ask an admin to put micromamba into /usr/local/bin.",
        code="no_builder",
    )
