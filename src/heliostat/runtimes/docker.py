"""Docker runtime. Its daemon is root, and so is effectively every user who may use it: admins must allow it."""

from collections.abc import Iterator

from heliostat.runtimes import oci_options
from heliostat.runtimes.contract import (
    TOOL_PATH,
    ContainerIsolation,
    ContainerLimits,
    ContainerSpec,
    RuntimeCommand,
    UnsupportedByRuntime,
)
from heliostat.runtimes.oci_options import format_env_file, split_variables

_PROGRAM = "docker"
_NETWORKS = {"private": "bridge"}


class Docker:
    name = "docker"
    needs_image = True
    program = _PROGRAM

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        task, isolation = spec.task, spec.isolation
        if task.image is None:
            raise UnsupportedByRuntime("docker needs an image")
        exported, sealed_variables = split_variables(spec.variables.common)
        sealed = format_env_file(sealed_variables)
        argv = (
            *(_PROGRAM, "run", "--rm", "--init"),
            f"--runtime={isolation.oci_runtime}",
            f"--network={_NETWORKS.get(task.network, task.network)}",
            *_limits(spec.limits, isolation),
            *oci_options.root_filesystem_options(isolation),
            *oci_options.container_options(spec),
            *oci_options.variable_options(list(exported), sealed, spec.variables.per_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.user.home}
        return RuntimeCommand(argv, exported | tools, sealed_content=sealed)


def _limits(limits: ContainerLimits, isolation: ContainerIsolation) -> Iterator[str]:
    """The daemon starts the container, so limits and cgroup must be passed explicitly."""
    yield f"--memory={limits.memory_mib}m"
    yield f"--memory-swap={limits.memory_mib}m"
    yield f"--cpus={limits.cpus}"
    yield f"--pids-limit={limits.pids}"
    if isolation.cgroup_parent:
        yield f"--cgroup-parent={isolation.cgroup_parent}"
