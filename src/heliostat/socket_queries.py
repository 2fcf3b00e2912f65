"""Netlink queries about TCP sockets of this machine: listeners of a port, and the owner of a connection.

/proc/net/tcp lists every connection of the machine; netlink answers for single sockets.
"""

import socket
import struct
from collections.abc import Iterator

_SOCK_DIAG, _BY_FAMILY = 4, 20  # linux/netlink.h, linux/sock_diag.h
_REQUEST_ONE, _REQUEST_DUMP = 0x1, 0x1 | 0x300
_DONE, _ERROR = 3, 2
_LISTEN, _ANY_STATE = 1 << 10, 0xFFFFFFFF
_HEADER = struct.Struct("=IHHII")
_REQUEST = struct.Struct("=BBBBI2s2s16s16sI8s")  # inet_diag_req_v2
_ANSWER = struct.Struct("=BBBB2s2s16s16s12xIIIII")  # inet_diag_msg
_NO_COOKIE = b"\xff" * 8
_TIMEOUT_SECONDS = 2.0
_BUFFER_BYTES = 1 << 16


class NetlinkUnavailable(Exception):
    """This kernel does not support socket queries by netlink."""


def query_listeners(port: int) -> list[tuple[str, int]]:
    """(address, inode) of every socket that listens on this port; the address as in /proc."""
    requests = [
        _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _LISTEN, b"", b"", b"", b"", 0, b"")
        for family in (socket.AF_INET, socket.AF_INET6)
    ]
    port_bytes = port.to_bytes(2, "big")
    answers = (_ANSWER.unpack_from(message) for message in _exchange(requests, _REQUEST_DUMP))
    return [
        (_proc_address(family, source), inode)
        for family, _, _, _, source_port, _, source, _, _, _, _, _, inode in answers
        if source_port == port_bytes
    ]


def query_connection_owner(client: tuple[str, int], server: tuple[str, int]) -> int | None:
    """The uid of the process on this machine that opened this connection; None: none on this machine.

    -1: its process has closed it, so that it has no owner. Raises NetlinkUnavailable.
    """
    family = socket.AF_INET6 if ":" in client[0] else socket.AF_INET
    try:
        ends = (socket.inet_pton(family, client[0]), socket.inet_pton(family, server[0]))
    except OSError:
        return None  # not addresses: a proxy reported the client
    ports = (client[1].to_bytes(2, "big"), server[1].to_bytes(2, "big"))
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, _ANY_STATE, *ports, *ends, 0, _NO_COOKIE)
    try:
        answer = next(_exchange([request], _REQUEST_ONE))
    except FileNotFoundError:
        return None
    *_, uid, inode = _ANSWER.unpack_from(answer)
    return int(uid) if inode else -1


def _exchange(requests: list[bytes], flags: int) -> Iterator[bytes]:
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _SOCK_DIAG) as kernel:
            kernel.settimeout(_TIMEOUT_SECONDS)
            for body in requests:
                kernel.send(_HEADER.pack(_HEADER.size + len(body), _BY_FAMILY, flags, 1, 0) + body)
                yield from _receive(kernel, is_dump=flags == _REQUEST_DUMP)
    except FileNotFoundError:
        raise
    except (OSError, struct.error) as error:
        raise NetlinkUnavailable(str(error)) from error


def _receive(kernel: socket.socket, *, is_dump: bool) -> Iterator[bytes]:
    while True:
        data = kernel.recv(_BUFFER_BYTES)
        while data:
            length, kind, *_ = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, _HEADER.size)[0]
                raise OSError(code, "netlink")  # Python chooses the subclass by the code
            yield data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]
        if not is_dump:
            return


def _proc_address(family: int, source: bytes) -> str:
    words = struct.unpack("=4I", source)[: 1 if family == socket.AF_INET else 4]
    return "".join(f"{word:08X}" for word in words)
