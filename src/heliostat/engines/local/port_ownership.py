"""Port ownership on this machine: checks that the process listening on a port belongs to the job."""

import asyncio
import contextlib
import os
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from heliostat.errors import EngineUnavailable
from heliostat.models import Attempt
from heliostat.models.sessions import ListeningSocket
from heliostat.payloads.port_listeners import NotListening, find_port_sockets, read_proc_listeners

MAX_CHECKS_PER_USER = 2  # concurrent, for all jobs of one user
_MAX_CHECKS = 16
_WAIT_SECONDS = 30.0

__all__ = ["NetlinkUnavailable", "NotListening", "PortOwnershipChecks", "find_listening", "query_listeners"]

_SOCK_DIAG, _BY_FAMILY = 4, 20  # linux/netlink.h, linux/sock_diag.h
_REQUEST_DUMP = 0x1 | 0x300
_DONE, _ERROR = 3, 2
_LISTEN = 1 << 10
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI48x")  # inet_diag_req_v2: all sockets in these states
_ANSWER = struct.Struct("=BBBB2s2s16s16s12xIIIII")  # inet_diag_msg
_TIMEOUT_SECONDS = 2.0
_BUFFER_BYTES = 1 << 16


class PortOwnershipChecks:
    """Checks, in threads, that only processes of an attempt listen on a port. Checks are limited per user: a job
    with very many open files makes them slow, but only for its own user."""

    def __init__(
        self, find: Callable[[Attempt, int], ListeningSocket], wait_seconds: float = _WAIT_SECONDS
    ) -> None:
        """`find` may raise Conflict."""
        self.find, self._wait_seconds = find, wait_seconds
        self._threads = ThreadPoolExecutor(_MAX_CHECKS, "port-check")
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_CHECKS_PER_USER)
        )

    async def find_async(self, attempt: Attempt, port: int) -> ListeningSocket:
        """Where it listens now. Always called on the same event loop. Raises Conflict or EngineUnavailable."""
        slot = self._slots[attempt.job.user]
        try:
            async with asyncio.timeout(self._wait_seconds):
                await slot.acquire()
        except TimeoutError:
            message = f"Checking port {port} of job {attempt.job.id} takes too long."
            raise EngineUnavailable(message, "Its processes may have too many open files: close some.") from None
        loop = asyncio.get_running_loop()

        def release(_: Future[ListeningSocket]) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed
                loop.call_soon_threadsafe(slot.release)

        try:
            work = self._threads.submit(self.find, attempt, port)
        except RuntimeError as error:
            slot.release()
            raise EngineUnavailable("The proxy is stopping.", "Try again in a moment.") from error
        work.add_done_callback(release)  # when the thread is free, even if the caller was cancelled
        return await asyncio.wrap_future(work)

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def find_listening(port: int, pids: Iterable[int]) -> ListeningSocket:
    """The socket on the loopback that is held by one of these processes. Raises NotListening."""
    held = find_port_sockets(port, pids, list_listeners=_listeners)
    return ListeningSocket(held.host, port, held.sockets)


def _listeners(port: int) -> list[tuple[str, int]]:
    try:
        return query_listeners(port)
    except NetlinkUnavailable:
        return read_proc_listeners(port)


class NetlinkUnavailable(Exception):
    """This kernel does not support socket queries by netlink."""


def query_listeners(port: int) -> list[tuple[str, int]]:
    """(address, inode) of every socket that listens on this port; the address as in /proc.

    Uses netlink, which returns listening sockets only, while /proc/net/tcp lists every connection of the machine.
    """
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_SECONDS)
            sockets = [*_query(kernel, socket.AF_INET), *_query(kernel, socket.AF_INET6)]
    except (OSError, struct.error) as error:
        raise NetlinkUnavailable(str(error)) from error
    port_bytes = port.to_bytes(2, "big")
    return [(address, inode) for source, address, inode in sockets if source == port_bytes]


def _query(kernel: socket.socket, family: int) -> Iterator[tuple[bytes, str, int]]:
    body = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _LISTEN)
    kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, _REQUEST_DUMP, 1, 0) + body)
    while True:
        data = kernel.recv(_BUFFER_BYTES)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, _HEADER.size)[0]
                raise OSError(code, os.strerror(code))
            yield _read(data[_HEADER.size : length])
            data = data[(length + 3) & ~3 :]


def _read(message: bytes) -> tuple[bytes, str, int]:
    family, _, _, _, source_port, _, source, _, *_, inode = _ANSWER.unpack_from(message)
    words = struct.unpack("=4I", source)[: 1 if family == socket.AF_INET else 4]
    return source_port, "".join(f"{word:08X}" for word in words), inode
