"""The proxy's server: what it leaves behind when it ends."""

import socket
import threading
from types import SimpleNamespace
from typing import Any, cast
from urllib.request import urlopen

import pytest

from heliostat.http_protocol import ConnectionLimiter, ConnectionLimits
from heliostat.proxy import proxy_server
from heliostat.proxy.proxy_server import ProxyServer
from heliostat.services.context import Context


class ProxyOfNothing:
    """Answers everybody; notes when its connections and threads are given up, and in which thread."""

    def __init__(self, _: Context) -> None:
        self.pool = SimpleNamespace(close=lambda: self.closed_by.append(threading.current_thread().name))
        self.closed_by: list[str] = []
        made.append(self)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"well"})


made: list[ProxyOfNothing] = []


def test_connections_and_threads_are_given_up_when_the_server_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proxy_server, "Proxy", ProxyOfNothing)
    listener = socket.create_server(("127.0.0.1", 0))
    server = ProxyServer(
        cast(Context, SimpleNamespace(engine=None)), listener, ConnectionLimiter(ConnectionLimits(100, 100, 100))
    )
    server.start()
    with urlopen(f"http://127.0.0.1:{listener.getsockname()[1]}/", timeout=60) as answer:
        assert answer.read() == b"well"
    assert made[-1].closed_by == []
    server.close()
    listener.close()
    assert made[-1].closed_by == ["proxy"]
