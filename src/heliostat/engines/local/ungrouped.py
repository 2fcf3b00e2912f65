"""The processes of an attempt on a machine without cgroups: found by session and mark, with no limits."""

import contextlib
import os

from heliostat.engines.local.cgroups import Group, Limits
from heliostat.engines.local.processes import kill_members, members, send_signal, start_time
from heliostat.engines.local.trace import Claim
from heliostat.engines.local.usage import Usage, usage_of
from heliostat.models import AttemptId

MARK = "HELIOSTAT_MARK"


def tools_folder(instance: str) -> str:
    """Where tools that hold containers keep their notes. Podman takes only short names, and wants it empty after
    a boot."""
    if os.geteuid() == 0:
        return f"/run/heliostat-{instance}"
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{own}/heliostat-{instance}" if os.path.isdir(own) else f"/tmp/heliostat-{instance}"  # noqa: S108


class UngroupedProcesses:
    """Does what a cgroup does, as well as it can be done without one."""

    enter_files: tuple[str, ...] = ()

    def __init__(self, instance: str, name: str) -> None:
        # A tool that holds a container forgets all variables but where it may keep its things.
        self._markers = (f"{MARK}={instance}-{name}", f"XDG_RUNTIME_DIR={tools_folder(instance)}/{name}")
        self._wrapper = Claim(0, 0)

    def led_by(self, wrapper: Claim) -> None:
        """The session is the wrapper's; the wrapper itself is not one of the payload's processes."""
        born = wrapper.start_time
        if born is None:
            with contextlib.suppress(OSError):  # no descriptor left, say: the marks tell its processes too
                born = start_time(wrapper.pid)
        self._wrapper = Claim(wrapper.pid, born)

    def pids(self) -> list[int]:
        leader = self._wrapper
        return members(leader.pid, self._markers, leader_start_time=leader.start_time, spare=[leader.pid])

    def kill(self, patience_seconds: float = 2.0) -> bool:
        leader = self._wrapper
        left = kill_members(
            leader.pid,
            self._markers,
            leader_start_time=leader.start_time,
            spare=[leader.pid],
            patience_seconds=patience_seconds,
        )
        return not left

    def signal(self, signal_number: int) -> None:
        for pid in self.pids():
            if (born := start_time(pid)) is not None:
                send_signal(pid, born, signal_number)

    def oom_kills(self) -> int:
        return 0

    def memory_peak_mib(self) -> int | None:
        return None

    def usage(self) -> Usage:
        return usage_of(self.pids())

    def remove(self) -> bool:
        """Nothing to remove; like a cgroup, it cannot be while processes are left."""
        return not self.pids()


class UngroupedTree:
    """Stands in for the cgroup tree."""

    description = "no cgroups: memory and cpu limits are not enforced"
    controllers: frozenset[str] = frozenset()

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def create(self, name: str, limits: Limits) -> UngroupedProcesses:
        return UngroupedProcesses(self._instance, name)

    def find(self, name: str) -> UngroupedProcesses | None:
        return UngroupedProcesses(self._instance, name)

    def names(self) -> list[str]:
        return []

    def remove(self) -> bool:
        return True


def marked(instance: str, attempt_id: AttemptId) -> Group:
    """What carries its mark: all there can be left when its cgroup is gone, or outside of it."""
    return UngroupedProcesses(instance, attempt_id)


def led(group: Group, wrapper: Claim) -> Group:
    """Without a cgroup, those of the wrapper's session are the attempt's too."""
    if isinstance(group, UngroupedProcesses):
        group.led_by(wrapper)
    return group
