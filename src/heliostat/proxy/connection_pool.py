"""Pool of connections to servers in jobs; each is verified to end in the job it was opened for."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from heliostat.models import AttemptId
from heliostat.proxy.upstream import UpstreamConnection
from heliostat.services.context import Context
from heliostat.services.proxy_routes import ProxyRoute, route_endpoint

P = TypeVar("P", bound=asyncio.Protocol)
_Key = tuple[AttemptId, int]
_IDLE_SECONDS = 30.0
_MAX_IDLE = 64  # per server


class ConnectionPool:
    """Used on one event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle: dict[_Key, list[tuple[float, UpstreamConnection]]] = {}

    async def acquire(self, route: ProxyRoute, *, may_be_used: bool) -> tuple[UpstreamConnection, bool]:
        """A connection, and whether it was used before: the server may then have closed it."""
        idle = self._idle.get(_key(route), [])
        while may_be_used and idle:
            since, connection = idle.pop()
            if connection.is_reusable and time.monotonic() - since < _IDLE_SECONDS:
                return connection, True
            connection.close()
        return await self.open(route, UpstreamConnection), False

    def release(self, route: ProxyRoute, connection: UpstreamConnection) -> None:
        idle = self._idle.setdefault(_key(route), [])
        if not connection.is_reusable or len(idle) >= _MAX_IDLE:
            connection.close()
            return
        idle.append((time.monotonic(), connection))
        self._close_expired()

    async def open(self, route: ProxyRoute, protocol: Callable[[], P]) -> P:
        """Raises Conflict or EngineUnavailable."""
        return await route_endpoint(self._context, route).open(protocol)

    def close(self) -> None:
        for idle in self._idle.values():
            for _, connection in idle:
                connection.close()
        self._idle.clear()

    def _close_expired(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        for key, idle in list(self._idle.items()):
            while idle and idle[0][0] < limit:
                idle.pop(0)[1].close()
            if not idle:
                with contextlib.suppress(KeyError):
                    del self._idle[key]


def _key(route: ProxyRoute) -> _Key:
    return route.attempt.id, route.port
