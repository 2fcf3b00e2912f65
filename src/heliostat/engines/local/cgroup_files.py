"""Access to the cgroup file system, shared by cgroup v1 and v2.

Plain os calls instead of pathlib, since a cgroup is created and removed for every attempt, hundreds per second.
"""

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from heliostat.engines.local.processes import oldest_first

MIB = 1 << 20
MAX_OPEN_PROCESSES = 256  # pidfds open at the same time: far below the default limit of 1024 open files
_NAME = re.compile(r"[0-9]+(\.[0-9]+)*")  # excludes "." and ".."
_GONE = frozenset({errno.ENOENT, errno.ENODEV})  # ENODEV: removed while the file was open
_NOTHING_TO_READ = _GONE | {errno.EOPNOTSUPP}  # a threaded cgroup cannot list processes

ListPids = Callable[[], list[int]]


def require_group_name(name: str) -> str:
    """The name, if it cannot escape its folder. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a cgroup name consists of digits and dots, unlike {name!r}")
    return name


def list_group_names(folder: str) -> list[str]:
    """The cgroups of attempts directly inside this folder; empty if the folder does not exist."""
    return [name for name in _child_names(folder) if _NAME.fullmatch(name)]


def write_file(path: str, text: str) -> None:
    """Write to an existing file. OSError has the file name."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)


def write_if_exists(path: str, text: str) -> None:
    """As `write_file`, but without an error if the cgroup does not exist."""
    try:
        write_file(path, text)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def read_file(path: str) -> str:
    """The whole text; empty if the cgroup or the file does not exist."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            chunks = iter(lambda: os.read(descriptor, 65536), b"")
            return b"".join(chunks).decode()
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _NOTHING_TO_READ:
            return ""
        raise


def parse_counter(text: str, key: str) -> int:
    """The number of this key in lines of `key number`; 0 if it is missing."""
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0


def sum_counters(text: str, keys: Collection[str]) -> int:
    """The sum of these keys in lines of `key number`. Faster than `parse_counter` for long texts."""
    lines = f"\n{text}\n"
    total = 0
    for key in keys:
        if (at := lines.find(f"\n{key} ")) >= 0:
            start = at + len(key) + 2
            total += int(lines[start : lines.index("\n", start)])
    return total


def mib_rounded_up(text: str) -> int | None:
    """A number of bytes as MiB; None for an empty text."""
    return -(-int(text) // MIB) if text.strip() else None


def make_folder(path: str) -> bool:
    """True: created; False: it existed."""
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return False
    return True


def remove_folder(path: str) -> bool:
    """Remove a cgroup and nested ones. True also if it does not exist; False while processes are left in it."""
    if _remove_one(path):
        return True
    # Few jobs create nested cgroups, so they are listed only when the simple removal fails.
    removed = [_remove_one(folder) for folder in reversed(folder_and_descendants(path))]
    return all(removed)


def folder_and_descendants(folder: str) -> list[str]:
    """The folder and every folder below it, parents before children."""
    found = [folder]
    for parent in found:  # grows during the loop
        found += [f"{parent}/{name}" for name in _child_names(parent)]
    return found


def read_pids(folder: str) -> list[int]:
    """The processes of this cgroup and of nested ones."""
    texts = [read_file(f"{group}/cgroup.procs") for group in folder_and_descendants(folder)]
    # A process in a foreign pid namespace is listed as 0.
    return [pid for text in texts for pid in map(int, text.split()) if pid > 0]


def signal_all(list_pids: ListPids, signal_number: int) -> None:
    """Signal every listed process, but never init, ourselves, or another process that reuses a listed pid.

    The process is opened first, then its pid is listed again: if it is still there, the open process is a member.
    A shell is signalled before the command that it waits for: else it might start its next command in between.
    """
    listed = oldest_first(set(list_pids()) - {1, os.getpid()})
    for start in range(0, len(listed), MAX_OPEN_PROCESSES):
        _signal_batch(listed[start : start + MAX_OPEN_PROCESSES], list_pids, signal_number)


def kill_until_empty(
    list_pids: ListPids, freeze: Callable[[], None], thaw: Callable[[], None], timeout_seconds: float
) -> bool:
    """KILL all while frozen, so that no process forks between the listing and the signal. True if empty.

    Makes at least one round, and repeats until the cgroup is empty or the timeout is reached.
    """
    deadline = time.monotonic() + timeout_seconds
    while True:
        if os.getpid() not in list_pids():  # otherwise no process would be left to thaw it
            freeze()
        try:
            signal_all(list_pids, signal.SIGKILL)
        finally:
            thaw()
        left_seconds = deadline - time.monotonic()
        if wait_until(lambda: not list_pids(), min(left_seconds, 0.2)):
            return True
        if left_seconds <= 0:
            return False


def wait_until(condition: Callable[[], bool], timeout_seconds: float) -> bool:
    """Poll the condition at increasing intervals. True: it became true; False: timeout."""
    deadline = time.monotonic() + timeout_seconds
    pause_seconds = 0.0002
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_seconds)
        pause_seconds = min(pause_seconds * 2, 0.02)
    return True


def _signal_batch(pids: list[int], list_pids: ListPids, signal_number: int) -> None:
    opened: dict[int, int] = {}
    try:
        for pid in pids:
            with suppress(ProcessLookupError):
                opened[pid] = os.pidfd_open(pid)
        still_listed = set(list_pids())
        for pid, descriptor in opened.items():
            if pid in still_listed:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal_number)
    finally:
        for descriptor in opened.values():
            os.close(descriptor)


def _remove_one(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno in {errno.EBUSY, errno.ENOTEMPTY}:
            return False
        raise
    return True


def _child_names(folder: str) -> list[str]:
    try:
        # Two links mean no subfolder ("..") inside, which saves listing about 60 files.
        if os.stat(folder).st_nlink == 2:
            return []
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
