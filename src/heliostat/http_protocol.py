"""HTTP connections of the control plane and of the proxy: how many a client may have, how long a head may take."""

import asyncio
import os
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from heliostat.auth.client_address import Connection, find_client, is_trusted_proxy, network_of

_MAX_TCP, _MAX_UNIX = 20_000, 5_000
_MAX_REFUSED = 256  # refused connections that wait for their request, so that it can be answered
_REFUSAL_SECONDS = 2.0
_MAX_HEAD_BYTES = 128 * 1024
_HOST = rb"(?:[A-Za-z0-9._~-]*|\[[0-9A-Fa-f:.]+\])(?::\d{1,5})?"
_HOST_PATTERN = re.compile(_HOST)
_ORIGIN_PATTERN = re.compile(rb"null|[A-Za-z][A-Za-z0-9+.-]*://" + _HOST)
_REFUSAL_BODY = (
    b'{"error":{"code":"too_many_requests","message":"Too many open connections.",'
    b'"hint":"Close some of them, or try again later.","fields":{}}}'
)
_REFUSAL = (
    b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%s" % (len(_REFUSAL_BODY), _REFUSAL_BODY)
)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Unix sockets are counted apart: TCP connections cannot use them up."""

    tcp: int
    unix: int
    per_client: int  # a Unix user of this machine, or a network of one address elsewhere
    head_seconds: float = 20.0

    @classmethod
    def for_open_files(cls, maximum: int, per_client: int) -> "ConnectionLimits":
        """The rest of the open files is for jobs, the database and the proxy's connections to jobs."""
        return cls(min(_MAX_TCP, maximum // 3), min(_MAX_UNIX, maximum // 8), per_client)

    def total(self, family: int) -> int:
        return self.unix if family == socket.AF_UNIX else self.tcp


@dataclass(frozen=True, slots=True)
class _Client:
    family: int
    name: str  # empty: a trusted proxy, which has many clients


class ConnectionLimiter:
    """Counts the open connections of all ports. Thread-safe."""

    def __init__(
        self,
        limits: ConnectionLimits,
        trusted_proxies: Sequence[str] = (),
        unlimited_users: Collection[int] = (0, os.geteuid()),
    ) -> None:
        self.limits = limits
        self._trusted_proxies, self._unlimited_users = trusted_proxies, unlimited_users
        self._lock = threading.Lock()
        self._clients: Counter[_Client] = Counter()
        self._families: Counter[int] = Counter()
        self.refused = 0

    def enter(self, client: _Client) -> bool:
        total = self.limits.total(client.family)
        per_client = min(self.limits.per_client, total // 4)
        with self._lock:
            if self._families[client.family] >= total:
                return False
            if client.name and self._clients[client] >= per_client:
                return False
            self._families[client.family] += 1
            self._clients[client] += 1
            return True

    def leave(self, client: _Client) -> None:
        with self._lock:
            self._families[client.family] -= 1
            self._clients[client] -= 1
            if not self._clients[client]:
                del self._clients[client]

    def identify(self, transport: Any) -> _Client | None:
        """None: it is not limited, so that admins can always reach the server."""
        connection = transport.get_extra_info("socket")
        if connection is None or connection.family == socket.AF_UNIX:
            uid = peer_uid(connection) if connection is not None else None
            return self._user(socket.AF_UNIX, uid, "unknown")
        ends = (transport.get_extra_info(name) or ("", 0) for name in ("peername", "sockname"))
        tcp = Connection(*((str(end[0]), int(end[1])) for end in ends))
        if is_trusted_proxy(tcp, self._trusted_proxies):
            return _Client(socket.AF_INET, "")
        client = find_client(tcp, "", ())
        return self._user(socket.AF_INET, client.uid, network_of(client.ip))

    def _user(self, family: int, uid: int | None, otherwise: str) -> _Client | None:
        if uid in self._unlimited_users:
            return None
        return _Client(family, otherwise if uid is None else f"uid {uid}")


def peer_uid(connection: socket.socket) -> int:
    """The user at the other end of a Unix socket. Nothing a client sends can change it."""
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[4:8], sys.byteorder)


def find_header_problem(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """A wrong Host or Origin: the code behind this can rely on one valid value."""
    seen = set()
    for name, value in headers:
        pattern = {b"host": _HOST_PATTERN, b"origin": _ORIGIN_PATTERN}.get(name)
        if pattern is not None and (name in seen or not pattern.fullmatch(value)):
            return f"The header {name.decode().title()} is not valid, or there are several."
        seen.add(name)
    return None


class LimitedHttpProtocol(HttpToolsProtocol):
    """Refuses connections above the limits, heads that do not arrive in time, invalid Host and Origin headers."""

    def __init__(self, limiter: ConnectionLimiter, **options: Any) -> None:
        super().__init__(**options)
        self._limiter = limiter
        self._client: _Client | None = None
        self._is_refused = False
        self._head_deadline: asyncio.TimerHandle | None = None
        self._head_bytes = 0
        self._problem = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        client = self._limiter.identify(transport)
        if client is None or self._limiter.enter(client):
            self._client = client
            self._wait_for_head(self._limiter.limits.head_seconds)
            return
        self._is_refused = True
        self._limiter.refused += 1
        if self._limiter.refused > _MAX_REFUSED:
            transport.abort()
        self._wait_for_head(_REFUSAL_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_arrived()
        self.release()
        super().connection_lost(exc)

    def release(self) -> None:
        """The connection no longer counts."""
        if self._is_refused:
            self._is_refused = False
            self._limiter.refused -= 1
        if self._client is not None:
            self._limiter.leave(self._client)
            self._client = None

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._is_refused:
            self.transport.write(_REFUSAL)
            self.transport.close()
            return
        super().data_received(data)
        if self._head_deadline is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response("The head of the request is too large.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait_for_head(self._limiter.limits.head_seconds)

    def on_headers_complete(self) -> None:
        self._head_arrived()
        if problem := find_header_problem(self.headers):
            self._problem = problem
            raise ValueError(problem)  # the parser stops, and `send_400_response` is called
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(self._problem or msg)

    def _wait_for_head(self, seconds: float) -> None:
        if self._head_deadline is None:
            self._head_bytes = 0
            self._head_deadline = self.loop.call_later(seconds, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._head_deadline is not None:
            self._head_deadline.cancel()
            self._head_deadline = None
