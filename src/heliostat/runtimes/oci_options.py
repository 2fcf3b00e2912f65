"""What podman and docker have in common, also which variables they may see on their way into the container."""

import re
from collections.abc import Iterator, Mapping, Sequence

from heliostat.models import Mount
from heliostat.runtimes.contract import SEALED_PATH, ContainerIsolation, ContainerSpec, UnsupportedByRuntime

# What the dynamic linker, the C library, Go, the tools or the scripts that run them heed: exported to a tool that
# runs outside the container, such a variable would change what the tool does there.
_HEEDED = re.compile(
    r"""(LD|GLIBC|MALLOC|GCONV|NIX|XDG|SSL_CERT|LISTEN|NOTIFY|DBUS|LC|CONTAINERS?|DOCKER|PODMAN|BUILDAH|STORAGE|REGISTRY
    |REGISTRIES|APPTAINER|SINGULARITY|NETAVARK|SLIRP4NETNS|CNI|TMPDIR|TMP|TEMP)(_.*)?
    |(APPTAINER|SINGULARITY)ENV_.*|_.*|(SLURMD?|heliostat)_.*
    |GO(DEBUG|GC|MAXPROCS|MEMLIMIT|TRACEBACK|COVERDIR)|OCI_RUNTIME|TEMPDIR
    |PATH|HOME|USER|LOGNAME|SHELL|PWD|LANG|LANGUAGE|LOCPATH|NLSPATH|RES_OPTIONS|HOSTALIASES|LOCALDOMAIN|HOSTNAME
    |ENV|BASH_ENV|TERM|TZ|TZDIR""",
    re.VERBOSE,
)
_LONGEST_LINE = 60_000  # of a file of variables that a tool reads


def container_options(asked: ContainerSpec) -> Iterator[str]:
    """Who runs there, what is there, what it may do."""
    task = asked.task
    yield f"--user={task.user.uid}:{task.user.gid}"
    yield f"--workdir={task.workdir}"
    yield "--entrypoint="  # the command is run as it stands
    yield "--cap-drop=all"
    yield "--security-opt=no-new-privileges"
    yield f"--shm-size={asked.limits.memory_mib}m"  # 64 MiB by default, too little for the loaders of data
    for mount in asked.mounts:
        yield _bind(mount)
    for uuid in asked.devices:
        yield f"--device=nvidia.com/gpu={uuid}"


def variable_options(exported: Sequence[str], sealed: bytes, of_task: Mapping[str, str]) -> Iterator[str]:
    if sealed:
        yield f"--env-file={SEALED_PATH}"
    for name in exported:
        yield f"--env={name}"
    for name, value in of_task.items():
        yield f"--env={name}={value}"


def root_filesystem_options(confinement: ContainerIsolation) -> Iterator[str]:
    if confinement.read_only_root:
        yield "--read-only"


def _bind(mount: Mount) -> str:
    """Neither path holds a comma, a quotation mark or a colon: those are refused before."""
    return f"--mount=type=bind,src={mount.source},dst={mount.target}{',ro=true' if mount.read_only else ''}"


def affects_container_tool(name: str) -> bool:
    return _HEEDED.fullmatch(name) is not None


def split_variables(variables: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Those that may be exported to the tool, and those that it must get as a text."""
    exported = {name: value for name, value in variables.items() if not affects_container_tool(name)}
    return exported, {name: value for name, value in variables.items() if affects_container_tool(name)}


def format_env_file(variables: Mapping[str, str]) -> bytes:
    """`NAME=value`, one a line, as podman and docker read them: no quotes, nothing is filled in."""
    for name, value in variables.items():
        if "\n" in value or "\r" in value or len(value) > _LONGEST_LINE:
            raise UnsupportedByRuntime(
                f"the environment variable {name} must be one line of at most {_LONGEST_LINE} bytes"
            )
    text = "".join(f"{name}={value}\n" for name, value in variables.items())
    return text.encode("utf-8", "surrogateescape")
