"""Asks through a proxy, and says how quickly it went. Run as a script: the caller's own work disturbs it less.

usage: proxy_client.py ADDRESS KEY small SECONDS | proxy_client.py ADDRESS KEY streams MEGABYTES   (prints JSON)
"""

import asyncio
import json
import sys
import time
from statistics import median, quantiles
from urllib.parse import SplitResult, urlsplit

import uvloop

CONCURRENT_CONNECTIONS = 16
ECHO_SECONDS = 2.0
FRAME = b"\x81\x20" + b"y" * 32  # as a server sends it: what matters is that it comes back


class HttpConnection:
    """One connection, one question after the other."""

    def __init__(self, address: SplitResult, key: str) -> None:
        self._address = address
        self._more = f"Host: {address.netloc}\r\n" + (f"Authorization: Bearer {key}\r\n" if key else "")
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter

    async def connect(self) -> "HttpConnection":
        host, port = self._address.hostname, self._address.port
        self.reader, self.writer = await asyncio.open_connection(host, port, limit=1 << 20)
        return self

    async def request(self, method: str, path: str, headers: str = "", body: bytes = b"", times: int = 1) -> int:
        """How many bytes the answer has; the body is sent so many times."""
        length = f"Content-Length: {len(body) * times}\r\n" if body else ""
        head = f"{method} {self._address.path}{path} HTTP/1.1\r\n{self._more}{headers}{length}\r\n"
        self.writer.write(head.encode())
        for _ in range(times if body else 0):
            self.writer.write(body)
            await self.writer.drain()
        answer = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        if not answer.startswith((b"http/1.1 200", b"http/1.1 101")):
            raise SystemExit(f"{method} {path}: {answer[:200]!r}")
        return await self._body(answer)

    async def _body(self, answer: bytes) -> int:
        if b"101 " in answer[:16]:
            return 0
        if b"content-length:" not in answer:
            raise SystemExit("an answer without its length")
        left = size = int(answer.partition(b"content-length:")[2].partition(b"\r\n")[0])
        while left:
            part = await self.reader.read(min(left, 1 << 20))
            if not part:
                raise SystemExit("an answer was cut off")
            left -= len(part)
        return size


async def time_small_requests(address: SplitResult, key: str, seconds: float, at_once: int) -> list[float]:
    """How long each small GET took, in seconds."""
    times: list[float] = []
    until = time.perf_counter() + seconds

    async def on_and_on() -> None:
        asker = await HttpConnection(address, key).connect()
        await asker.request("GET", "small")
        while (began := time.perf_counter()) < until:
            await asker.request("GET", "small")
            times.append(time.perf_counter() - began)
        asker.writer.close()

    await asyncio.gather(*(on_and_on() for _ in range(at_once)))
    return times


async def time_echoes(address: SplitResult, key: str, seconds: float) -> list[float]:
    asker = await HttpConnection(address, key).connect()
    origin = f"Origin: http://{address.netloc}\r\n"
    handshake = "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    await asker.request("GET", "echo", f"Connection: Upgrade\r\nUpgrade: websocket\r\n{origin}{handshake}")
    times: list[float] = []
    until = time.perf_counter() + seconds
    while (began := time.perf_counter()) < until:
        asker.writer.write(FRAME)
        await asker.reader.readexactly(len(FRAME))
        times.append(time.perf_counter() - began)
    asker.writer.close()
    return times


async def measure_small_requests(address: SplitResult, key: str, seconds: float) -> dict[str, float]:
    crowd = await time_small_requests(address, key, seconds, CONCURRENT_CONNECTIONS)
    alone = await time_small_requests(address, key, seconds, 1)
    return {
        "requests_per_second": len(crowd) / seconds,
        "requests": len(crowd) + len(alone),
        "latency_ms": median(alone) * 1000,
        "latency_p95_ms": quantiles(alone, n=20)[-1] * 1000,
    }


async def measure_streams(address: SplitResult, key: str, megabytes: int) -> dict[str, float]:
    began = time.perf_counter()
    await (await HttpConnection(address, key).connect()).request("GET", f"big?bytes={megabytes << 20}")
    downloaded = time.perf_counter()
    await (await HttpConnection(address, key).connect()).request(
        "POST", "up", body=b"z" * (1 << 20), times=megabytes
    )
    uploaded = time.perf_counter()
    frames = await time_echoes(address, key, ECHO_SECONDS)
    return {
        "download_mib_per_second": megabytes / (downloaded - began),
        "upload_mib_per_second": megabytes / (uploaded - downloaded),
        "echo_ms": median(frames) * 1000,
    }


async def main() -> None:
    address, key, kind, amount = urlsplit(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
    told = await (
        measure_small_requests(address, key, amount)
        if kind == "small"
        else measure_streams(address, key, int(amount))
    )
    print(json.dumps(told))


uvloop.run(main())
