"""Port ownership: which processes listen on a port, so that users are never connected to another user's server.

Every user of a node can listen on any port, also on one that a job has just released. So a connection is used only
if the kernel lists the same listening sockets before and after it was made, all held by processes of the job. Runs
in the server, for jobs on its own host, and inside jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

_LISTEN = "0A"
# Addresses as the kernel prints them: 32-bit words in host byte order.
_V4 = {"0100007F", "00000000"}
_V4_AS_V6 = {"0000000000000000FFFF00000100007F"}
_V6 = {"0" * 24 + "01000000"}
_ALL_V6 = {"0" * 32}  # and, without IPV6_V6ONLY, all of IPv4
_V6_ADDRESSES = "/proc/net/if_inet6"
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class NotListening(Exception):
    """No process of this job listens there; the message is the reason."""


class PortSockets(NamedTuple):
    """The loopback address of a port, and the inodes of the sockets that listen there."""

    host: str
    sockets: tuple[int, ...]


def find_port_sockets(
    port: int,
    pids: Iterable[int],
    is_member: Callable[[int], bool] = lambda _: True,
    list_listeners: Callable[[int], list[tuple[str, int]]] | None = None,
) -> PortSockets:
    """Sockets listening on the loopback, held by those of `pids` for which `is_member`. Raises NotListening.

    `list_listeners` returns (address, inode) of all listening sockets; None: read /proc.
    """
    listeners = (list_listeners or read_proc_listeners)(port)
    four, six, both = _inodes(listeners, _V4 | _V4_AS_V6), _inodes(listeners, _V6), _inodes(listeners, _ALL_V6)
    if not four | six | both:
        raise NotListening(f"no process listens on port {port} of 127.0.0.1")
    held = _held(four | six | both, pids, is_member)
    # While a socket listens on all IPv6 addresses, another process may listen on 127.0.0.1: use ::1 then.
    if not _has_v6_loopback():
        four = four | both
    for host, surely, sockets in (("127.0.0.1", four, four | both), ("::1", six | both, six | both)):
        if surely and sockets <= held:
            return PortSockets(host, tuple(sorted(sockets)))
    raise NotListening(f"the process that listens on port {port} is not part of the job")


def _has_v6_loopback() -> bool:
    try:
        with open(_V6_ADDRESSES, encoding="ascii") as file:
            return any(line.startswith("0" * 31 + "1 ") for line in file)
    except OSError:
        return False


def read_proc_listeners(port: int) -> list[tuple[str, int]]:
    """(address, inode) of every socket that listens on this port."""
    ending = f":{port:04X}"
    listeners = []
    for table in _TABLES:
        try:
            with open(table, encoding="ascii") as file:
                rows = [line.split() for line in file if ending in line]
        except FileNotFoundError:  # IPv6 is disabled
            continue
        listeners += [
            (row[1].partition(":")[0], int(row[9]))
            for row in rows
            if row[1].endswith(ending) and row[3] == _LISTEN
        ]
    return listeners


def _inodes(listeners: Iterable[tuple[str, int]], addresses: Collection[str]) -> frozenset[int]:
    return frozenset(inode for address, inode in listeners if address in addresses)


def _held(inodes: Collection[int], pids: Iterable[int], is_member: Callable[[int], bool]) -> frozenset[int]:
    """The sockets that one of the processes has open."""
    names = {f"socket:[{inode}]": inode for inode in inodes}
    held: set[int] = set()
    for pid in pids:
        open_sockets = {names[name] for name in _open_files(pid) if name in names}
        if open_sockets and is_member(pid):
            held |= open_sockets
        if len(held) == len(names):
            break
    return frozenset(held)


def _open_files(pid: int) -> list[str]:
    folder = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(folder)
    except OSError:  # it has just ended, or belongs to another user
        return []
    return [_link(f"{folder}/{descriptor}") for descriptor in descriptors]


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
