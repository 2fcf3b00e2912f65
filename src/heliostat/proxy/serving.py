"""Runs the proxy in a thread and an event loop of its own: a long upload never keeps the control plane waiting."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn

from heliostat.config import ServerSettings
from heliostat.errors import Conflict
from heliostat.proxy.app import Proxy
from heliostat.proxy.gathering import GatheringProtocol
from heliostat.proxy.tunnel import Tunnel
from heliostat.server_log import get_logger
from heliostat.services.context import Context

log = get_logger()
_STOP_SECONDS = 5.0


class ProxyServer:
    def __init__(self, context: Context, listener: socket.socket) -> None:
        proxy = Proxy(context)
        tunnel: Any = partial(Tunnel, proxy)
        config = uvicorn.Config(
            proxy,
            http=GatheringProtocol,
            ws=tunnel,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
            timeout_keep_alive=75,
        )
        self._server = _Server(config, context, proxy)
        self._listener = listener
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        self._server.run(sockets=[self._listener])


class _Server(uvicorn.Server):
    """Signals are for the control plane, which stops us."""

    def __init__(self, config: uvicorn.Config, context: Context, proxy: Proxy) -> None:
        super().__init__(config)
        self._relays, self._pool = context.relays, proxy.pool

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._relays is not None:
            self._relays.attach()
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._pool.close()
        if self._relays is not None:
            await self._relays.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen_for_proxy(server: ServerSettings, control: socket.socket) -> socket.socket:
    """Where the settings say, else on the port after that of the control plane, or any if that is taken."""
    usual = control.getsockname()[1] + 1 if server.port else 0
    wanted = usual if server.proxy_port is None else server.proxy_port
    try:
        return _listen(server.host, wanted)
    except (OSError, OverflowError) as error:
        if server.proxy_port is None:
            log.warning("proxy_port_taken", port=wanted, next="set proxy_port in [server] of cluster.toml")
            return _listen(server.host, 0)
        raise Conflict(
            f"Port {wanted} on {server.host} cannot be used for sessions: {error}.",
            "Set another proxy_port in [server] of cluster.toml (0 takes any free one).",
        ) from error


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(512)
    except BaseException:
        listener.close()
        raise
    return listener
