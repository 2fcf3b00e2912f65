"""Command-line options that podman and docker share, and the variables that must not be exported to them."""

import re
from collections.abc import Iterator, Mapping, Sequence

from heliostat.models import Mount
from heliostat.runtimes.contract import SEALED_PATH, ContainerIsolation, ContainerSpec, UnsupportedByRuntime

# Variables read by the dynamic linker, the C library, Go, the container tools or our scripts: exported to a tool,
# which runs outside the container, they would change what the tool does.
_TOOL_VARIABLES = re.compile(
    r"""(LD|GLIBC|MALLOC|GCONV|NIX|XDG|SSL_CERT|LISTEN|NOTIFY|DBUS|LC|CONTAINERS?|DOCKER|PODMAN|BUILDAH|STORAGE|REGISTRY
    |REGISTRIES|APPTAINER|SINGULARITY|NETAVARK|SLIRP4NETNS|CNI|TMPDIR|TMP|TEMP)(_.*)?
    |(APPTAINER|SINGULARITY)ENV_.*|_.*|(SLURMD?|heliostat)_.*
    |GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK|COVERDIR)|OCI_RUNTIME|TEMPDIR
    |PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN|HOSTNAME
    |ENV|BASH_ENV|TERM|TZ|TZDIR""",
    re.VERBOSE,
)
_MAX_LINE_BYTES = 60_000  # of a file of variables that a tool reads


def container_options(spec: ContainerSpec) -> Iterator[str]:
    """User, working directory, privileges, mounts and devices."""
    task = spec.task
    yield f"--user={task.user.uid}:{task.user.gid}"
    yield f"--workdir={task.workdir}"
    yield "--entrypoint="  # run the command without the image's entrypoint
    yield "--cap-drop=all"
    yield "--security-opt=no-new-privileges"
    yield f"--shm-size={spec.limits.memory_mib}m"  # the default of 64 MiB is too small for data loaders
    for mount in spec.mounts:
        yield _bind(mount)
    for uuid in spec.devices:
        yield f"--device=nvidia.com/gpu={uuid}"


def variable_options(exported: Sequence[str], sealed: bytes, per_task: Mapping[str, str]) -> Iterator[str]:
    if sealed:
        yield f"--env-file={SEALED_PATH}"
    for name in exported:
        yield f"--env={name}"
    for name, value in per_task.items():
        yield f"--env={name}={value}"


def root_filesystem_options(isolation: ContainerIsolation) -> Iterator[str]:
    if isolation.read_only_root:
        yield "--read-only"


def _bind(mount: Mount) -> str:
    """Paths with a comma, a quotation mark or a colon are rejected earlier."""
    return f"--mount=type=bind,src={mount.source},dst={mount.target}{',ro=true' if mount.read_only else ''}"


def affects_container_tool(name: str) -> bool:
    return _TOOL_VARIABLES.fullmatch(name) is not None


def split_variables(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Variables that may be exported to the tool, and variables that must be passed as an env file."""
    exported = {name: value for name, value in variables.items() if not affects_container_tool(name)}
    return exported, {name: value for name, value in variables.items() if affects_container_tool(name)}


def format_env_file(variables: Mapping[str, str]) -> bytes:
    """`NAME=value` lines as podman and docker read them: without quotes or expansion."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value or len(value) > _MAX_LINE_BYTES:
            raise UnsupportedByRuntime(
                f"the environment variable {name} must be one line of at most {_MAX_LINE_BYTES} bytes"
            )
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    return text.encode("utf-8", "surrogateescape")
