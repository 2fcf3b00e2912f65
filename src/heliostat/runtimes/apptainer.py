"""Apptainer runtime: images as single files, containers as plain processes of the user."""

from collections.abc import Iterator, Mapping, Sequence

from heliostat.models import Mount
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerSpec,
    RuntimeCommand,
    UnsupportedByRuntime,
)

_PROGRAM = "apptainer"
_PREFIX = "APPTAINERENV_"


class Apptainer:
    name = "apptainer"
    needs_image = True
    program = _PROGRAM

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        """An image is a file (/data/torch.sif) or a name in a registry."""
        task, isolation = spec.task, spec.isolation
        if task.image is None:
            raise UnsupportedByRuntime("apptainer needs an image")
        if task.network == "private":
            raise UnsupportedByRuntime("apptainer does not support a private network: choose host or none")
        argv = (
            *(_PROGRAM, "--silent", "exec", "--containall", "--cleanenv", "--no-home", "--no-privs"),
            *(["--net", "--network=none"] if task.network == "none" else []),
            *([] if isolation.read_only_root else ["--writable-tmpfs"]),
            *(["--nv"] if spec.devices else []),
            f"--pwd={task.workdir}",
            *_binds(spec.mounts),
            "--",
            _image(task.image, task.image_archive),
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.user.home}
        tools |= {"APPTAINER_CACHEDIR": isolation.image_store, "APPTAINER_TMPDIR": isolation.scratch_folder}
        return RuntimeCommand(argv, tools | _prefixed(spec.variables.common), _prefixed(spec.variables.per_task))


def _image(name: str, archive: str | None) -> str:
    if name.startswith("/"):
        return name
    return f"docker://{name}" if archive is None else f"oci-archive:{archive}"


def _binds(mounts: Sequence[Mount]) -> Iterator[str]:
    for mount in mounts:
        mode = ",ro" if mount.read_only else ""
        yield f"--mount=type=bind,source={mount.source},destination={mount.target}{mode}"


def _prefixed(variables: Mapping[str, str]) -> dict[str, str]:
    """With the prefix, apptainer ignores a variable itself and passes it on without the prefix."""
    return {f"{_PREFIX}{name}": value for name, value in variables.items()}
