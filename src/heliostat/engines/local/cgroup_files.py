"""What both cgroup versions do with their file system.

Plain os calls instead of pathlib: a group is made and removed for every attempt, hundreds of times a second.
"""

import errno
import os
import re
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress

MIB = 1 << 20
MAX_OPEN_PROCESSES = 256  # processes held open at once: far below the usual limit of 1024 open files
_NAME = re.compile(r"[0-9]+(\.[0-9]+)*")  # neither "." nor ".." passes
_GONE = frozenset({errno.ENOENT, errno.ENODEV})  # ENODEV: removed while we held the file open
_NOTHING_TO_READ = _GONE | {errno.EOPNOTSUPP}  # a threaded group refuses to list processes

ListPids = Callable[[], list[int]]


def require_group_name(name: str) -> str:
    """The name, when it cannot lead out of its folder; ValueError otherwise."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"a group is named by numbers and dots, not {name!r}")
    return name


def list_group_names(folder: str) -> list[str]:
    """The groups of attempts directly inside this folder; none when the folder is gone."""
    return [name for name in _child_names(folder) if _NAME.fullmatch(name)]


def write_file(path: str, text: str) -> None:
    """Write into a file that exists. OSError names the file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from error
    finally:
        os.close(descriptor)


def write_if_exists(path: str, text: str) -> None:
    """As `write_file`, but a group that is gone is left at that."""
    try:
        write_file(path, text)
    except OSError as error:
        if error.errno not in _GONE:
            raise


def read_file(path: str) -> str:
    """The whole text; empty when the group or the file is gone."""
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
    """The number after the key in lines of `key number`; 0 when there is none."""
    for line in text.splitlines():
        name, _, number = line.partition(" ")
        if name == key:
            return int(number)
    return 0


def sum_counters(text: str, keys: Collection[str]) -> int:
    """The numbers after these keys in lines of `key number`, together. Quicker than `counter` in long texts."""
    lines = f"\n{text}\n"
    total = 0
    for key in keys:
        if (at := lines.find(f"\n{key} ")) >= 0:
            start = at + len(key) + 2
            total += int(lines[start : lines.index("\n", start)])
    return total


def mib_rounded_up(text: str) -> int | None:
    """A file's number of bytes in MiB; None for an empty file."""
    return -(-int(text) // MIB) if text.strip() else None


def make_folder(path: str) -> bool:
    """True when it is new, False when it was there."""
    try:
        os.mkdir(path, 0o755)
    except FileExistsError:
        return False
    return True


def remove_folder(path: str) -> bool:
    """Remove a group and those inside it. Gone is success; False while processes are left in it."""
    if _remove_one(path):
        return True
    # Almost no job makes groups of its own, so we look for them only when the plain way fails.
    removed = [_remove_one(folder) for folder in reversed(folder_and_descendants(path))]
    return all(removed)


def folder_and_descendants(folder: str) -> list[str]:
    """The folder and every folder below it, parents before children."""
    found = [folder]
    for parent in found:  # grows while we go
        found += [f"{parent}/{name}" for name in _child_names(parent)]
    return found


def read_pids(folder: str) -> list[int]:
    """The processes of this group and of those inside it."""
    texts = [read_file(f"{group}/cgroup.procs") for group in folder_and_descendants(folder)]
    # A process of another pid namespace is listed as 0.
    return [pid for text in texts for pid in map(int, text.split()) if pid > 0]


def signal_all(list_pids: ListPids, signal_number: int) -> None:
    """Signal every process that is listed, never init, ourselves, or a stranger who got a listed number.

    We open the process first, then ask whether the number is still listed: if so, what we opened is a member.
    """
    listed = sorted(set(list_pids()) - {1, os.getpid()})
    for start in range(0, len(listed), MAX_OPEN_PROCESSES):
        _signal_batch(listed[start : start + MAX_OPEN_PROCESSES], list_pids, signal_number)


def kill_until_empty(
    list_pids: ListPids, freeze: Callable[[], None], thaw: Callable[[], None], patience_seconds: float
) -> bool:
    """KILL all while frozen, so that nobody forks away between the listing and the signal. True when empty.

    At least one round is made; rounds go on until the group is empty or the patience is over.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        if os.getpid() not in list_pids():  # or nobody would be left to thaw
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


def wait_until(condition: Callable[[], bool], patience_seconds: float) -> bool:
    """Ask at once, then ever more seldom until the patience is over. The last answer."""
    deadline = time.monotonic() + patience_seconds
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
        for pid in opened.keys() & still_listed:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(opened[pid], signal_number)
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
        # A link for the name, one for "." and one for each ".." inside: two spares us a listing of 60 files.
        if os.stat(folder).st_nlink == 2:
            return []
        with os.scandir(folder) as entries:
            return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except FileNotFoundError:
        return []
