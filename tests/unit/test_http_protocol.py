"""Connections: at most so many per client, heads that arrive in time, headers that name one host."""

import asyncio
import contextlib
import functools
import os
import resource
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from heliostat.http_protocol import ConnectionLimiter, ConnectionLimits, LimitedHttpProtocol, find_header_problem

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
SECONDS = 60.0


async def app(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


class Connection:
    def __init__(self, streams: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        self.reader, self.writer = streams

    async def ask(self, request: bytes = REQUEST) -> bytes:
        """The status line and, of an error, all of the response."""
        self.writer.write(request)
        async with asyncio.timeout(SECONDS):
            line = await self.reader.readline()
            if b"200" not in line:
                return line + await self.reader.read()
            await self.reader.readuntil(b"\r\n\r\nok")
            return line

    async def read_to_end(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def serving(folder: Path, limits: ConnectionLimits) -> AsyncIterator[Any]:
    """Connects by TCP or, with `unix=True`, by a Unix socket."""
    limiter = ConnectionLimiter(limits, unlimited_users=())
    config = uvicorn.Config(app, http=functools.partial(LimitedHttpProtocol, limiter), lifespan="off", ws="none")  # type: ignore[arg-type]
    config.load()
    state, loop = ServerState(), asyncio.get_running_loop()

    def protocol() -> asyncio.Protocol:
        made: Any = config.http_protocol_class
        return made(config=config, server_state=state, app_state={})

    path = str(folder / "socket")
    tcp = await loop.create_server(protocol, "127.0.0.1", 0)
    unix = await loop.create_unix_server(protocol, path)
    connections: list[Connection] = []

    async def connect(*, unix: bool = False) -> Connection:
        port = tcp.sockets[0].getsockname()[1]
        streams = asyncio.open_unix_connection(path) if unix else asyncio.open_connection("127.0.0.1", port)
        connections.append(Connection(await streams))
        return connections[-1]

    try:
        yield connect
    finally:
        for one in connections:
            one.writer.close()
        for listener in (tcp, unix):
            listener.close()
        for protocol_left in list(state.connections):
            protocol_left.transport.abort()
        await asyncio.sleep(0)


def test_a_client_with_too_many_connections_is_told_so_and_others_are_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path, ConnectionLimits(tcp=100, unix=8, per_client=3)) as connect:
            opened = [await connect() for _ in range(3)]
            assert [await one.ask() for one in opened] == [b"HTTP/1.1 200 OK\r\n"] * 3
            refusal = await (await connect()).ask()
            assert refusal.startswith(b"HTTP/1.1 429 ")
            assert b"Too many open connections." in refusal
            by_socket = [await connect(unix=True) for _ in range(3)]
            answers = [await one.ask() for one in by_socket]
            assert [answer.split()[1] for answer in answers] == [b"200", b"200", b"429"]  # a quarter of all
            opened[0].writer.close()
            await opened[0].writer.wait_closed()
            async with asyncio.timeout(SECONDS):
                while b"200" not in await (await connect()).ask():
                    pass

    asyncio.run(run())


def test_a_head_that_does_not_arrive_in_time_ends_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        limits = ConnectionLimits(tcp=100, unix=100, per_client=100, head_seconds=0.05)
        async with serving(tmp_path, limits) as connect:
            silent, half = await connect(), await connect(unix=True)
            half.writer.write(b"GET / HTTP/1.1\r\nHost: here\r\n")
            assert await silent.read_to_end() == await half.read_to_end() == b""
            again = await connect()
            assert b"200" in await again.ask()
            again.writer.write(REQUEST[:-2])  # the next request on the same connection
            assert await again.read_to_end() == b""

    asyncio.run(run())


def test_a_head_without_end_ends_the_connection(tmp_path: Path) -> None:
    async def run() -> None:
        limits = ConnectionLimits(tcp=100, unix=100, per_client=100, head_seconds=600.0)
        async with serving(tmp_path, limits) as connect:
            endless = await connect()
            endless.writer.write(REQUEST[:-2] + b"X: " + b"x" * 300_000)
            await endless.read_to_end()

    asyncio.run(run())


@pytest.mark.parametrize(
    "headers",
    [b"Host: [", b"Host: a\r\nHost: b", b"Host: a/b", b"Host: a\r\nOrigin: http://[", b"Host: a\r\nOrigin: x"],
)
def test_an_invalid_host_or_origin_is_a_bad_request_in_plain_text(tmp_path: Path, headers: bytes) -> None:
    async def run() -> bytes:
        async with serving(tmp_path, ConnectionLimits(tcp=100, unix=100, per_client=100)) as connect:
            answer: bytes = await (await connect()).ask(b"GET / HTTP/1.1\r\n" + headers + b"\r\n\r\n")
            return answer

    answer = asyncio.run(run())
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"text/plain" in answer
    assert b"is not valid, or there are several." in answer


@pytest.mark.parametrize("host", [b"a.example.org:80", b"127.0.0.1", b"[::1]:8470", b"", b"my_host"])
def test_hosts_and_origins_of_browsers_are_valid(host: bytes) -> None:
    origins = (b"null", b"https://" + host, b"moz-extension://0a1b-2c")
    assert [find_header_problem([(b"host", host), (b"origin", origin)]) for origin in origins] == [None] * 3


def test_a_server_raises_its_limit_of_open_files_and_remembers_the_first_one() -> None:
    code = (
        "from heliostat.open_files import raise_open_files_limit as up; import os, resource;"
        "up(); print(up(), *resource.getrlimit(resource.RLIMIT_NOFILE), os.environ['HELIOSTAT_OPEN_FILES'])"
    )
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    environment = {name: value for name, value in os.environ.items() if name != "HELIOSTAT_OPEN_FILES"}
    command = ["/bin/sh", "-c", 'ulimit -S -n 200; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(hard), str(hard), str(hard), "200"]


def test_tcp_leaves_open_files_to_unix_sockets_and_jobs() -> None:
    limits = ConnectionLimits.for_open_files(1024, per_client=1000)
    assert limits.total(socket.AF_INET) + limits.total(socket.AF_UNIX) < 512
    assert limits.total(socket.AF_UNIX) == 128
