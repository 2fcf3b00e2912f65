"""Processes of this machine, told apart from later ones that got the same number.

A process is known by its number and its start time; together with the boot they are unique. Needs Linux 5.3.
"""

import os
import select
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import NamedTuple

_BATCH = 256  # processes held open at once: far below the usual limit of 1024 open files
_LONGEST_EXEC_SECONDS = 2.0  # a busy machine may stop a process while it becomes another program


@cache
def boot_id() -> str:
    """Another one after each start of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def boot_time() -> datetime:
    """When the machine started, by the wall clock as it is set now; a little early rather than late."""
    return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) + 1)


def process_start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot; None when the number is free. A zombie has one too."""
    found = _read_stat(pid)
    return found.start_time if found else None


def is_running(pid: int, start_time: int) -> bool:
    """Whether this very process still runs; a zombie does not."""
    found = _read_stat(pid)
    return found is not None and found.start_time == start_time and found.is_alive


def open_pidfd(pid: int, start_time: int) -> int | None:
    """A descriptor of this very process, to be closed by the caller; None when it no longer runs."""
    if pid <= 1:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Checked after opening: from here on the descriptor means the process we have looked at.
    if is_running(pid, start_time):
        return descriptor
    os.close(descriptor)
    return None


def send_signal(pid: int, start_time: int, signal_number: int) -> bool:
    """Signal this very process, never init or ourselves. False when it no longer runs."""
    descriptor = None if pid == os.getpid() else open_pidfd(pid, start_time)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, signal_number)
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)
    return True


def find_attempt_pids(
    session_id: int, markers: Collection[str], *, leader_start_time: int | None = None, spare: Collection[int] = ()
) -> list[int]:
    """The living processes of an attempt, on a machine without cgroups.

    Those born with a marker ("HELIOSTAT_ATTEMPT_ID=12.1") in their environment, and those of the session.
    Session numbers are used again, so a session is taken for ours only while its leader is the one that
    started at `leader_start_time`, or one of its processes has a marker. Who leaves the session and wipes
    its environment escapes. What we may not read is not ours. `spare` are left out, such as the wrapper.
    """
    return [found.pid for found in _find_members(session_id, markers, leader_start_time, spare)]


def kill_attempt_processes(
    session_id: int,
    markers: Collection[str],
    *,
    leader_start_time: int | None = None,
    spare: Collection[int] = (),
    patience_seconds: float = 5.0,
) -> list[int]:
    """KILL the members again and again until none is left or the patience is over. Those that are left."""
    deadline = time.monotonic() + patience_seconds
    while found := _find_members(session_id, markers, leader_start_time, spare):
        if time.monotonic() >= deadline:
            break
        for start in range(0, len(found), _BATCH):
            _kill_and_wait(found[start : start + _BATCH], min(0.5, deadline - time.monotonic()))
    return [process.pid for process in found]


def belongs_to_user(pid: int, user: str, uid: int) -> bool:
    """Whether it runs as this user, or as one of the user numbers that they have for their containers."""
    try:
        owner = os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return False
    return owner == uid or any(first <= owner < first + count for first, count in _sub_ids(user, uid))


def _sub_ids(user: str, uid: int) -> Iterator[tuple[int, int]]:
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for name, *numbers in (line.split(":") for line in lines):
        if name in (user, str(uid)) and len(numbers) == 2 and all(one.isdecimal() for one in numbers):
            yield int(numbers[0]), int(numbers[1])


class _Process(NamedTuple):
    pid: int
    session_id: int
    start_time: int
    is_alive: bool
    has_memory: bool  # kernel threads and zombies have none
    has_no_environment: bool  # or none for us to see; not so of who is just becoming another program


def _read_stat(pid: int) -> _Process | None:
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name before the last bracket may hold spaces and brackets. After it comes field 3 of proc(5).
    fields = text[text.rindex(b")") + 2 :].split()
    # A main thread that has ended looks like a zombie while the other threads go on.
    is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    # Where its code starts is set last: until then an exec is not over, and the environment still grows.
    # If we may not look, the kernel shows 1 for it, and no environment.
    has_no_environment = fields[47] == fields[48] and fields[23] != b"0"
    return _Process(pid, int(fields[3]), int(fields[19]), is_alive, fields[20] != b"0", has_no_environment)


def _find_members(
    session_id: int, markers: Collection[str], leader_start_time: int | None, spare: Collection[int]
) -> list[_Process]:
    spared = {1, os.getpid(), *spare}
    everyone = list(_scan())
    marked = list(_find_marked([process for process in everyone if process.has_memory], markers))
    in_session = [
        process
        for process in everyone
        if session_id > 1 and process.session_id == session_id and process not in marked
    ]  # kernel threads are in session 0
    is_our_session = any(process.session_id == session_id for process in marked) or (
        leader_start_time is not None and process_start_time(session_id) == leader_start_time
    )
    found = marked + in_session if is_our_session else marked
    return [process for process in found if process.is_alive and process.pid not in spared]


def _scan() -> Iterator[_Process]:
    for name in os.listdir("/proc"):
        if name.isdecimal() and (process := _read_stat(int(name))):
            yield process


def _find_marked(unknown: list[_Process], markers: Collection[str]) -> Iterator[_Process]:
    """In the middle of an exec a process shows no environment for a moment: who looks just then would miss it."""
    wanted = [b"\0" + os.fsencode(marker) + b"\0" for marker in markers]
    deadline = time.monotonic() + _LONGEST_EXEC_SECONDS
    while unknown:
        environs = [(process, _read(f"/proc/{process.pid}/environ")) for process in unknown]
        for process, environ in environs:
            if any(marker in b"\0" + environ + b"\0" for marker in wanted):
                yield process
        unknown = [process for process, environ in environs if not environ and _may_be_in_exec(process)]
        if time.monotonic() >= deadline:
            return
        if unknown:
            time.sleep(0.0005)


def _may_be_in_exec(process: _Process) -> bool:
    now = _read_stat(process.pid)
    if now is None or now.start_time != process.start_time:
        return False
    return now.has_memory and not now.has_no_environment


def _kill_and_wait(processes: list[_Process], patience_seconds: float) -> None:
    """KILL these and wait for their ends, so that the next look finds only what is new or stuck."""
    opened = [open_pidfd(process.pid, process.start_time) for process in processes]
    running = {descriptor for descriptor in opened if descriptor is not None}
    try:
        for descriptor in running:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _wait_for_ends(running, time.monotonic() + patience_seconds)
    finally:
        for descriptor in running:
            os.close(descriptor)


def _wait_for_ends(descriptors: set[int], deadline: float) -> None:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    left = len(descriptors)
    while left and (left_seconds := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left_seconds * 1000):
            poll.unregister(descriptor)
            left -= 1


def _read(path: str) -> bytes:
    """The whole file; empty when it is gone or not for us."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
