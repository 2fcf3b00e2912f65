"""Containers by a daemon that is root: who may use it is root on that node, so admins must allow it."""

from collections.abc import Iterator

from heliostat.runtimes import oci
from heliostat.runtimes.contract import (
    TOOL_PATH,
    CannotContain,
    Command,
    Confinement,
    Container,
    Limits,
)
from heliostat.runtimes.oci import as_lines, split

_PROGRAM = "docker"
_NETWORKS = {"private": "bridge"}


class Docker:
    name = "docker"
    takes_images = True
    program = _PROGRAM

    def command(self, asked: Container) -> Command:
        task, confinement = asked.task, asked.confinement
        if task.image is None:
            raise CannotContain("docker needs an image")
        exported, heeded = split(asked.environment.common)
        sealed = as_lines(heeded)
        argv = (
            *(_PROGRAM, "run", "--rm", "--init"),
            f"--runtime={confinement.oci_runtime}",
            f"--network={_NETWORKS.get(task.network, task.network)}",
            *_limits(asked.limits, confinement),
            *oci.root(confinement),
            *oci.inside(asked),
            *oci.variables(list(exported), sealed, asked.environment.of_task),
            "--",
            task.image,
            *task.argv,
        )
        tools = {"PATH": TOOL_PATH, "HOME": task.identity.home}
        return Command(argv, exported | tools, sealed=sealed)


def _limits(limits: Limits, confinement: Confinement) -> Iterator[str]:
    """The daemon starts it: it is in our cgroup only because we say so."""
    yield f"--memory={limits.memory_mib}m"
    yield f"--memory-swap={limits.memory_mib}m"
    yield f"--cpus={limits.cpus}"
    yield f"--pids-limit={limits.pids}"
    if confinement.cgroup_parent:
        yield f"--cgroup-parent={confinement.cgroup_parent}"
