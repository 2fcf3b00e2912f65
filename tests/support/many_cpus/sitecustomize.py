"""A server with this on its path finds sixteen cpus: each replica of a service needs one."""

import os


def _sixteen(pid: int) -> set[int]:
    return set(range(16))


os.sched_getaffinity = _sixteen
