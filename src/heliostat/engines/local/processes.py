"""Processes of this machine, safe against reuse of pids: finding, signalling and killing them.

A process is identified by its pid and start time, which are unique within one boot. Needs Linux 5.3.
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

_BATCH = 256  # pidfds open at the same time: far below the default limit of 1024 open files
_MAX_EXEC_SECONDS = 2.0  # on a busy machine, an exec may take this long


@cache
def boot_id() -> str:
    """Different after each boot."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def boot_time() -> datetime:
    """When the machine booted, by the current wall clock; rounded down by up to a second."""
    return datetime.now(UTC) - timedelta(seconds=time.clock_gettime(time.CLOCK_BOOTTIME) + 1)


def process_start_time(pid: int) -> int | None:
    """When it started, in clock ticks since boot; None: no such process. Zombies are included."""
    found = _read_stat(pid)
    return found.start_time if found else None


def is_running(pid: int, start_time: int) -> bool:
    """Whether exactly this process still runs. A zombie does not."""
    found = _read_stat(pid)
    return found is not None and found.start_time == start_time and found.is_alive


def oldest_first(pids: Collection[int]) -> list[int]:
    """Parents before their children, also after the numbers of processes have wrapped around."""
    return sorted(pids, key=lambda pid: (process_start_time(pid) or 0, pid))


def open_pidfd(pid: int, start_time: int) -> int | None:
    """A pidfd of exactly this process, to be closed by the caller; None: it no longer runs."""
    if pid <= 1:
        return None
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Checked after opening: the descriptor refers to the process that is checked here.
    if is_running(pid, start_time):
        return descriptor
    os.close(descriptor)
    return None


def send_signal(pid: int, start_time: int, signal_number: int) -> bool:
    """Signal exactly this process, never init or ourselves. False: it no longer runs."""
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

    These are the processes that were started with a marker ("HELIOSTAT_ATTEMPT_ID=12.1") in their environment, and
    those of the session. Session ids are reused, so a session belongs to the attempt only while its leader is the
    process that started at `leader_start_time`, or while one of its processes has a marker. A process that leaves
    the session and clears its environment is not found. Processes that we cannot read are not part of the attempt.
    `spare`: excluded processes, such as the wrapper.
    """
    return [found.pid for found in _find_members(session_id, markers, leader_start_time, spare)]


def kill_attempt_processes(
    session_id: int,
    markers: Collection[str],
    *,
    leader_start_time: int | None = None,
    spare: Collection[int] = (),
    timeout_seconds: float = 5.0,
) -> list[int]:
    """KILL the processes repeatedly until none is left or the timeout is reached. Returns those left."""
    deadline = time.monotonic() + timeout_seconds
    while found := _find_members(session_id, markers, leader_start_time, spare):
        if time.monotonic() >= deadline:
            break
        for start in range(0, len(found), _BATCH):
            _kill_and_wait(found[start : start + _BATCH], min(0.5, deadline - time.monotonic()))
    return [process.pid for process in found]


def belongs_to_user(pid: int, user: str, uid: int) -> bool:
    """Whether it runs as this user, or as one of the user's subordinate ids (in a container)."""
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
        if name in (user, str(uid)) and len(numbers) == 2 and all(number.isdecimal() for number in numbers):
            yield int(numbers[0]), int(numbers[1])


class _Process(NamedTuple):
    pid: int
    session_id: int
    start_time: int
    is_alive: bool
    has_memory: bool  # kernel threads and zombies have none
    has_no_environment: bool  # or it is not readable; False during an exec


def _read_stat(pid: int) -> _Process | None:
    text = _read(f"/proc/{pid}/stat")
    if not text:
        return None
    # The name in brackets may contain spaces and brackets. After the last bracket comes field 3 of proc(5).
    fields = text[text.rindex(b")") + 2 :].split()
    # If only the main thread has ended, the process is listed as a zombie while its other threads run.
    is_alive = fields[0] not in (b"Z", b"X") or int(fields[17]) > 1
    # startcode is set last: while it is 0, an exec is under way and the environment is incomplete.
    # If we have no permission, the kernel shows 1 for it, and no environment.
    has_no_environment = fields[47] == fields[48] and fields[23] != b"0"
    return _Process(pid, int(fields[3]), int(fields[19]), is_alive, fields[20] != b"0", has_no_environment)


def _find_members(
    session_id: int, markers: Collection[str], leader_start_time: int | None, spare: Collection[int]
) -> list[_Process]:
    spared = {1, os.getpid(), *spare}
    processes = list(_scan())
    marked = list(_find_marked([process for process in processes if process.has_memory], markers))
    in_session = [
        process
        for process in processes
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
    """During an exec the environment of a process is empty for a moment: read it again until the exec is done."""
    patterns = [b"\0" + os.fsencode(marker) + b"\0" for marker in markers]
    deadline = time.monotonic() + _MAX_EXEC_SECONDS
    while unknown:
        environs = [(process, _read(f"/proc/{process.pid}/environ")) for process in unknown]
        for process, environ in environs:
            if any(pattern in b"\0" + environ + b"\0" for pattern in patterns):
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


def _kill_and_wait(processes: list[_Process], timeout_seconds: float) -> None:
    """KILL these and wait for their ends, so that the next scan finds only new or stuck processes."""
    opened = [open_pidfd(process.pid, process.start_time) for process in processes]
    running = {descriptor for descriptor in opened if descriptor is not None}
    try:
        for descriptor in running:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        _wait_for_ends(running, time.monotonic() + timeout_seconds)
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
    """The whole file; empty if the process has ended or the file is not readable."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""
