"""Proxy server: runs in a separate thread and event loop, so that long uploads do not block the control plane."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import uvicorn

from heliostat.config import ServerSettings
from heliostat.errors import Conflict
from heliostat.http_protocol import ConnectionLimiter, LimitedHttpProtocol
from heliostat.proxy.app import Proxy
from heliostat.proxy.websocket_tunnel import WebSocketTunnel
from heliostat.server_log import get_logger
from heliostat.services.context import Context, attach_endpoints, detach_endpoints

log = get_logger()
_STOP_SECONDS = 5.0

_MAX_COALESCED_BYTES = 64 * 1024  # copying more costs more than another system call


class ProxyServer:
    def __init__(self, context: Context, listener: socket.socket, limiter: ConnectionLimiter) -> None:
        proxy = Proxy(context)
        tunnel: Any = partial(WebSocketTunnel, proxy)
        protocol: Any = partial(WriteCoalescingProtocol, limiter)
        config = uvicorn.Config(
            proxy,
            http=protocol,
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
    """Ignores signals: the control plane handles them and stops the proxy."""

    def __init__(self, config: uvicorn.Config, context: Context, proxy: Proxy) -> None:
        super().__init__(config)
        self._context, self._pool = context, proxy.pool

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        attach_endpoints(self._context)
        await super().startup(sockets)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        self._pool.close()
        await detach_endpoints(self._context)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def open_proxy_listener(server: ServerSettings, control: socket.socket) -> socket.socket:
    """On `proxy_port`; by default the port after the control plane's, or any free port if that is in use."""
    default = control.getsockname()[1] + 1 if server.port else 0
    port = default if server.proxy_port is None else server.proxy_port
    try:
        return _listen(server.host, port)
    except (OSError, OverflowError) as error:
        if server.proxy_port is None:
            log.warning("proxy_port_taken", port=port, next="set proxy_port in [server] of cluster.toml")
            return _listen(server.host, 0)
        raise Conflict(
            f"The proxy cannot listen on port {port} of {server.host}: {error}.",
            "Set another proxy_port in [server] of cluster.toml (0: any free port).",
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


class WriteCoalescingProtocol(LimitedHttpProtocol):
    """HTTP protocol of the proxy."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(WriteCoalescingTransport(transport, self.loop))

    def on_response_complete(self) -> None:
        if isinstance(self.transport, WriteCoalescingTransport):
            self.transport.flush()
        super().on_response_complete()

    def handle_websocket_upgrade(self) -> None:
        if isinstance(self.transport, WriteCoalescingTransport):
            self.transport = self.transport.unwrap()  # a tunnel does not coalesce writes
        super().handle_websocket_upgrade()
        tunnel = self.transport.get_protocol()
        if isinstance(tunnel, WebSocketTunnel):
            tunnel.on_disconnect = self.release


class WriteCoalescingTransport(asyncio.Transport):
    """Coalesces writes until the writer waits or the buffer is full, so that the head and body of a response
    are sent together."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._buffer: list[bytes] = []
        self._buffered_bytes = 0

    def write(self, data: Any) -> None:
        if self._buffered_bytes + len(data) > _MAX_COALESCED_BYTES:
            self.flush()
            self._transport.write(data)
            return
        if not self._buffer:
            self._loop.call_soon(self.flush)
        self._buffer.append(data)
        self._buffered_bytes += len(data)

    def unwrap(self) -> asyncio.Transport:
        self.flush()
        return self._transport

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        self._buffer.clear()
        self._buffered_bytes = 0
        self._transport.abort()

    def flush(self) -> None:
        if self._buffer:
            data = self._buffer[0] if len(self._buffer) == 1 else b"".join(self._buffer)
            self._buffer.clear()
            self._buffered_bytes = 0
            self._transport.write(data)

    # --- delegated unchanged

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._transport.get_extra_info(name, default)

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        self._transport.resume_reading()

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._transport.set_protocol(protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._transport.get_protocol()
