"""What podman and docker have in common."""

from collections.abc import Iterator, Mapping, Sequence

from heliostat.models import Mount
from heliostat.runtimes.contract import SEALED, Confinement, Container


def inside(asked: Container) -> Iterator[str]:
    """Who runs there, what is there, what it may do."""
    task = asked.task
    yield f"--user={task.identity.uid}:{task.identity.gid}"
    yield f"--workdir={task.workdir}"
    yield "--entrypoint="  # the command is run as it stands
    yield "--cap-drop=all"
    yield "--security-opt=no-new-privileges"
    yield f"--shm-size={asked.limits.memory_mib}m"  # 64 MiB by default, too little for the loaders of data
    for mount in asked.mounts:
        yield _bind(mount)
    for uuid in asked.devices:
        yield f"--device=nvidia.com/gpu={uuid}"


def variables(exported: Sequence[str], sealed: bytes, of_task: Mapping[str, str]) -> Iterator[str]:
    if sealed:
        yield f"--env-file={SEALED}"
    for name in exported:
        yield f"--env={name}"
    for name, value in of_task.items():
        yield f"--env={name}={value}"


def root(confinement: Confinement) -> Iterator[str]:
    if confinement.read_only_root:
        yield "--read-only"


def _bind(mount: Mount) -> str:
    """Neither path holds a comma, a quotation mark or a colon: those are refused before."""
    return f"--mount=type=bind,src={mount.source},dst={mount.target}{',ro=true' if mount.read_only else ''}"
