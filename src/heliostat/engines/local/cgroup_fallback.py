"""Fallback without cgroups: finds the processes of an attempt by session and mark, and enforces no limits."""

import contextlib
import os

from heliostat.engines.local.cgroups import Cgroup, CgroupLimits
from heliostat.engines.local.claim_files import WrapperClaim
from heliostat.engines.local.process_usage import ProcessUsage, read_process_usage
from heliostat.engines.local.processes import (
    find_attempt_pids,
    kill_attempt_processes,
    oldest_first,
    process_start_time,
    send_signal,
)
from heliostat.models import AttemptId

MARK_VARIABLE = "HELIOSTAT_MARK"


def container_runtime_folder(instance: str) -> str:
    """The runtime folder of container tools. Podman requires a short path that is empty after a boot."""
    if os.geteuid() == 0:
        return f"/run/heliostat-{instance}"
    own = os.environ.get("XDG_RUNTIME_DIR", "")
    return f"{own}/heliostat-{instance}" if os.path.isdir(own) else f"/tmp/heliostat-{instance}"  # noqa: S108


class FallbackCgroup:
    """The interface of a cgroup, as far as it can be provided without one."""

    enter_files: tuple[str, ...] = ()

    def __init__(self, instance: str, name: str) -> None:
        # Container tools clear their environment except for XDG_RUNTIME_DIR.
        self._markers = (
            f"{MARK_VARIABLE}={instance}-{name}",
            f"XDG_RUNTIME_DIR={container_runtime_folder(instance)}/{name}",
        )
        self._wrapper = WrapperClaim(0, 0)

    def set_wrapper(self, wrapper: WrapperClaim) -> None:
        """Processes in the wrapper's session belong to the attempt; the wrapper itself does not."""
        start_time = wrapper.start_time
        if start_time is None:
            with contextlib.suppress(OSError):  # for example no free descriptor; marks identify the processes too
                start_time = process_start_time(wrapper.pid)
        self._wrapper = WrapperClaim(wrapper.pid, start_time)

    def pids(self) -> list[int]:
        leader = self._wrapper
        return find_attempt_pids(
            leader.pid, self._markers, leader_start_time=leader.start_time, spare=[leader.pid]
        )

    def kill(self, timeout_seconds: float = 2.0) -> bool:
        leader = self._wrapper
        left = kill_attempt_processes(
            leader.pid,
            self._markers,
            leader_start_time=leader.start_time,
            spare=[leader.pid],
            timeout_seconds=timeout_seconds,
        )
        return not left

    def signal(self, signal_number: int) -> None:
        for pid in oldest_first(self.pids()):  # see `cgroup_files.signal_all`
            if (start_time := process_start_time(pid)) is not None:
                send_signal(pid, start_time, signal_number)

    def oom_kills(self) -> int:
        return 0

    def memory_peak_mib(self) -> int | None:
        return None

    def usage(self) -> ProcessUsage:
        return read_process_usage(self.pids())

    def remove(self) -> bool:
        """There is nothing to remove; like a cgroup, False while processes are left."""
        return not self.pids()


class FallbackCgroupTree:
    """The interface of a cgroup tree, without cgroups."""

    description = "no cgroups: memory and cpu limits are not enforced"
    controllers: frozenset[str] = frozenset()

    def __init__(self, instance: str) -> None:
        self._instance = instance

    def create(self, name: str, limits: CgroupLimits) -> FallbackCgroup:
        return FallbackCgroup(self._instance, name)

    def find(self, name: str) -> FallbackCgroup | None:
        return FallbackCgroup(self._instance, name)

    def names(self) -> list[str]:
        return []

    def remove(self) -> bool:
        return True


def make_marked_group(instance: str, attempt_id: AttemptId) -> Cgroup:
    """Processes with the attempt's mark: those left when its cgroup is gone, or outside of it."""
    return FallbackCgroup(instance, attempt_id)


def with_wrapper_session(group: Cgroup, wrapper: WrapperClaim) -> Cgroup:
    """Without a cgroup, processes in the wrapper's session belong to the attempt too."""
    if isinstance(group, FallbackCgroup):
        group.set_wrapper(wrapper)
    return group
