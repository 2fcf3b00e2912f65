"""Connections to servers inside jobs, each proven to end in the job it was opened for."""

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
_MOST_IDLE = 64  # of one server


class ConnectionPool:
    """Lives on one event loop."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._idle: dict[_Key, list[tuple[float, UpstreamConnection]]] = {}

    async def acquire(self, way: ProxyRoute, *, may_be_used: bool) -> tuple[UpstreamConnection, bool]:
        """One to send a request on, and whether it was used before: then it may be closed by now."""
        kept = self._idle.get(_key(way), [])
        while may_be_used and kept:
            since, connection = kept.pop()
            if connection.is_reusable and time.monotonic() - since < _IDLE_SECONDS:
                return connection, True
            connection.close()
        return await self.open(way, UpstreamConnection), False

    def release(self, way: ProxyRoute, connection: UpstreamConnection) -> None:
        kept = self._idle.setdefault(_key(way), [])
        if not connection.is_reusable or len(kept) >= _MOST_IDLE:
            connection.close()
            return
        kept.append((time.monotonic(), connection))
        self._drop_old()

    async def open(self, way: ProxyRoute, protocol: Callable[[], P]) -> P:
        """Raises Conflict or EngineUnavailable."""
        return await route_endpoint(self._context, way).open(protocol)

    def close(self) -> None:
        for kept in self._idle.values():
            for _, connection in kept:
                connection.close()
        self._idle.clear()

    def _drop_old(self) -> None:
        limit = time.monotonic() - _IDLE_SECONDS
        for key, kept in list(self._idle.items()):
            while kept and kept[0][0] < limit:
                kept.pop(0)[1].close()
            if not kept:
                with contextlib.suppress(KeyError):
                    del self._idle[key]


def _key(way: ProxyRoute) -> _Key:
    return way.attempt.id, way.port
