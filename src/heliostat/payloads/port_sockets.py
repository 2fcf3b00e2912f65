"""Who listens on a port of this machine, as the kernel says: nobody may be led to the service of somebody else.

Every user of the machine can listen on any port, also on one that a job has just left. So a connection counts only
if the kernel shows the same listening sockets before and after it was made, all of them held by the job.
Runs in the server, for jobs on its own machine, and inside jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_LISTEN = "0A"
# As the kernel writes addresses: each 32 bits as a number of this machine.
_V4 = {"0100007F", "00000000"}
_V4_AS_V6 = {"0000000000000000FFFF00000100007F"}
_V6 = {"0" * 24 + "01000000"}
_ALL_V6 = {"0" * 32}  # and, unless it is for IPv6 only, all of IPv4
_V6_ADDRESSES = "/proc/net/if_inet6"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class NotListening(Exception):
    """Nothing of this job listens there; says what was found instead."""


class PortSockets(NamedTuple):
    """Where a port is reached on this machine, and the sockets that listen there."""

    host: str
    sockets: tuple[int, ...]


def find_port_sockets(
    port: int,
    pids: Iterable[int],
    is_member: Callable[[int], bool] = lambda _: True,
    look: Callable[[int], list[tuple[str, int]]] | None = None,
) -> PortSockets:
    """On the loopback, held by those of these processes that are members. Raises NotListening.

    `look` says who listens; None: as /proc writes it.
    """
    found = (look or read_proc_listeners)(port)
    four, six, both = _inodes(found, _V4 | _V4_AS_V6), _inodes(found, _V6), _inodes(found, _ALL_V6)
    if not four | six | both:
        raise NotListening(f"nothing listens on port {port} of 127.0.0.1")
    held = _held(four | six | both, pids, is_member)
    # A socket for all of IPv6 may leave 127.0.0.1 to others, for a moment even: it is reached where it surely is.
    if not _has_v6_loopback():
        four = four | both
    for host, surely, sockets in (("127.0.0.1", four, four | both), ("::1", six | both, six | both)):
        if surely and sockets <= held:
            return PortSockets(host, tuple(sorted(sockets)))
    raise NotListening(f"what listens on port {port} is not part of the job")


def _has_v6_loopback() -> bool:
    try:
        with open(_V6_ADDRESSES, encoding="ascii") as file:
            return any(line.startswith("0" * 31 + "1 ") for line in file)
    except OSError:
        return False


def read_proc_listeners(port: int) -> list[tuple[str, int]]:
    """(address, inode) of every socket that listens on this port."""
    ending = f":{port:04X}"
    found = []
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file if ending in line]
        except FileNotFoundError:  # a machine without IPv6
            continue
        found += [
            (row[1].partition(":")[0], int(row[9]))
            for row in rows
            if row[1].endswith(ending) and row[3] == _LISTEN
        ]
    return found


def _inodes(found: Iterable[tuple[str, int]], addresses: Collection[str]) -> frozenset[int]:
    return frozenset(inode for address, inode in found if address in addresses)


def _held(inodes: Collection[int], pids: Iterable[int], is_member: Callable[[int], bool]) -> frozenset[int]:
    """Those that one of the processes has open."""
    names = {f"socket:[{inode}]": inode for inode in inodes}
    held: set[int] = set()
    for pid in pids:
        found = {names[name] for name in _open_files(pid) if name in names}
        if found and is_member(pid):
            held |= found
        if len(held) == len(names):
            break
    return frozenset(held)


def _open_files(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:  # it has just ended, or is somebody else's
        return []
    return [_link(f"{folder}/{descriptor}") for descriptor in descriptors]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
