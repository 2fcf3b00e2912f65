"""Bubblewrap runtime: the node's own software, read-only, and only the requested mounts. Needs no image."""

from collections.abc import Iterator, Mapping, Sequence

from heliostat.models import Mount
from heliostat.runtimes.contract import (
    SEALED_DESCRIPTOR,
    TOOL_PATH,
    ContainerSpec,
    RuntimeCommand,
    UnsupportedByRuntime,
)

_PROGRAM = "bwrap"
# These hold no files or sockets of users.
_SOFTWARE = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/etc", "/opt", "/sw", "/apps", "/cvmfs", "/nix", "/sys"),
)
_EMPTY = ("/tmp", "/var/tmp", "/run")  # noqa: S108
_NAMES = ("/run/systemd/resolve", "/run/nscd", "/run/nslcd", "/var/lib/sss/pipes")  # lookup of users and hosts
_GPU_FILES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


class Bubblewrap:
    name = "bubblewrap"
    needs_image = False
    program = _PROGRAM

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        task, isolation = spec.task, spec.isolation
        if task.image is not None:
            raise UnsupportedByRuntime("bubblewrap runs the node's own software, not an image")
        if task.network == "private":
            raise UnsupportedByRuntime(
                "bubblewrap does not support a private network: choose host or none, or another runtime"
            )
        argv = (
            _PROGRAM,
            "--unshare-all",
            *(["--share-net"] if task.network == "host" else []),
            "--die-with-parent",
            *("--cap-drop", "ALL"),
            "--clearenv",
            *_files(spec.mounts),
            *_device_files(isolation.device_files),
            *("--remount-ro", "/"),
            *("--chdir", task.workdir),
            *("--args", str(SEALED_DESCRIPTOR)),
            *_variables(spec.variables.per_task),
            "--",
            *task.argv,
        )
        sealed = "".join(f"{word}\0" for word in _variables(spec.variables.common))
        return RuntimeCommand(argv, {"PATH": TOOL_PATH}, sealed_content=sealed.encode("utf-8", "surrogateescape"))


def filesystem_options(mounts: Sequence[Mount]) -> tuple[str, ...]:
    """bwrap options for the node's software and these mounts. The caller makes the root read-only last."""
    return tuple(_files(mounts))


def _files(mounts: Sequence[Mount]) -> Iterator[str]:
    """Later mounts cover earlier ones, so a mount comes after the folder that contains it."""
    for folder in _SOFTWARE:
        yield from ("--ro-bind-try", folder, folder)
    yield from ("--proc", "/proc", "--dev", "/dev")
    for folder in _EMPTY:
        yield from ("--tmpfs", folder)
    for folder in _NAMES:
        yield from ("--ro-bind-try", folder, folder)
    for mount in sorted(mounts, key=lambda mount: mount.target):
        yield from ("--ro-bind" if mount.read_only else "--bind", mount.source, mount.target)


def _device_files(devices: Sequence[str]) -> Iterator[str]:
    for device in devices:
        yield from ("--dev-bind", device, device)
    for file in _GPU_FILES if devices else ():
        yield from ("--dev-bind-try", file, file)


def _variables(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        yield from ("--setenv", name, value)
