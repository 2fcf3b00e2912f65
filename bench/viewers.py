"""Many open live pages, in a process of their own: `python -m bench.viewers`.

The first line of its input is JSON: `address`, `pages` (each a cookie's secret and a path). It says `ready` once
all of them listen, goes on until its input ends, and then says how often each was refreshed.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median, quantiles
from urllib.parse import urlsplit

PAGE_FRAGMENTS = "counts,list"


@dataclass
class Viewer:
    """What `static/live_updates.js` does: listen; when something changed, ask for the parts again."""

    host: str
    port: int
    secret: str
    path: str
    listening: asyncio.Event = field(default_factory=asyncio.Event)
    refreshed_at: list[float] = field(default_factory=list)
    answer_ms: list[float] = field(default_factory=list)
    answer_bytes: list[int] = field(default_factory=list)
    known_version: str = ""

    async def watch(self) -> None:
        stream, talk = await self._open("/live?topic=jobs", "")
        pages = await asyncio.open_connection(self.host, self.port)
        try:
            while line := await stream.readline():
                if line.startswith(b": listening"):
                    self.listening.set()
                elif line.startswith(b"event: change"):
                    await self._refresh(*pages)
        finally:
            talk.close()
            pages[1].close()

    async def _open(self, path: str, more: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection(self.host, self.port)
        writer.write(self._request(path, more))
        await _head(reader)
        return reader, writer

    async def _refresh(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.perf_counter()
        known = f"X-Known: {self.known_version}\r\n" if self.known_version else ""
        writer.write(self._request(self.path, f"X-Fragment: {PAGE_FRAGMENTS}\r\nAccept-Encoding: gzip\r\n{known}"))
        status, headers = await _head(reader)
        length = int(headers.get("content-length", "0"))
        await reader.readexactly(length)
        if status not in (200, 204):
            raise RuntimeError(f"GET {self.path}: status {status}")
        self.known_version = headers.get("x-known", "")
        self.answer_ms.append((time.perf_counter() - began) * 1000)
        self.answer_bytes.append(length)
        self.refreshed_at.append(time.perf_counter())

    def _request(self, path: str, more: str) -> bytes:
        cookie = f"Cookie: helio_session={self.secret}\r\n"
        return f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n{cookie}{more}\r\n".encode()


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines[1:] if line)
    return int(lines[0].split()[1]), {name.lower(): value for name, _, value in pairs}


def summarize(viewers: list[Viewer], seconds: float) -> dict[str, float]:
    between = [later - at for viewer in viewers for at, later in pairwise(viewer.refreshed_at)]
    answers = [ms for viewer in viewers for ms in viewer.answer_ms]
    sizes = [size for viewer in viewers for size in viewer.answer_bytes]
    return {
        "refreshes": len(answers),
        "per_second": len(answers) / seconds,
        "every_seconds": median(between) if between else 0.0,
        "every_p95": quantiles(between, n=20)[-1] if len(between) > 1 else 0.0,
        "answer_ms": median(answers) if answers else 0.0,
        "answer_bytes": sum(sizes) / len(sizes) if sizes else 0.0,
    }


async def main() -> None:
    asked = json.loads(sys.stdin.readline())
    address = urlsplit(asked["address"])
    viewers = [Viewer(address.hostname or "", address.port or 0, *page) for page in asked["pages"]]
    tasks = [asyncio.create_task(viewer.watch()) for viewer in viewers]
    await asyncio.gather(*(viewer.listening.wait() for viewer in viewers))
    began = time.perf_counter()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    for task in tasks:
        if task.done():
            task.result()
        task.cancel()
    print(json.dumps(summarize(viewers, time.perf_counter() - began)), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
