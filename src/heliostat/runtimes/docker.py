"""Containers by a daemon that is root: who may use it is root on that node, so admins must allow it."""

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

    def make_command(self, asked: ContainerSpec) -> RuntimeCommand:
        task, confinement = asked.task, asked.isolation
        if task.image is None:
            raise UnsupportedByRuntime("docker needs an image")
        exported, heeded = split_variables(asked.variables.common)
        sealed = format_env_file(heeded)
        argv = (
            *(_PROGRAM, "run", "--rm", "--init"),
            f"--runtime={confinement.oci_runtime}",
            f"--network={_NETWORKS.get(task.network, task.network)}",
            *_limits(asked.limits, confinement),
            *oci_options.root_filesystem_options(confinement),
            *oci_options.container_options(asked),
            *oci_options.variable_options(list(exported), sealed, asked.variables.per_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.user.home}
        return RuntimeCommand(argv, exported | tools, sealed_content=sealed)


def _limits(limits: ContainerLimits, confinement: ContainerIsolation) -> Iterator[str]:
    """The daemon starts it: it is in our cgroup only because we say so."""
    yield f"--memory={limits.memory_mib}m"
    yield f"--memory-swap={limits.memory_mib}m"
    yield f"--cpus={limits.cpus}"
    yield f"--pids-limit={limits.pids}"
    if confinement.cgroup_parent:
        yield f"--cgroup-parent={confinement.cgroup_parent}"
