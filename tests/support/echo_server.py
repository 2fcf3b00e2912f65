"""A server to stand behind the proxy, on the standard library: says exactly what reached it. Run as a script.

usage: echo_server.py PORT_FILE [ADDRESS]
"""

import asyncio
import hashlib
import itertools
import json
import os
import sys

BODY_BLOCK = b"x" * 65536
released = asyncio.Event()
connection_numbers = itertools.count(1)  # of connections


async def handle_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    number = next(connection_numbers)
    try:
        while await handle_request(reader, writer, number):
            pass
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def handle_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> bool:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = [line.split(": ", 1) for line in lines]
    kind = target.partition("?")[0].rpartition("/")[2]
    if kind == "hasty":  # answers before it has read anything, and hangs up
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge")
        await writer.drain()
        return False
    size, digest = await read_body(reader, {name.lower(): value for name, value in headers})
    if kind == "parts":
        await send_in_parts(writer)
        return True
    if kind == "big":
        return await send_large_body(writer, int(target.rpartition("=")[2]))
    if kind == "release":
        released.set()
    told = {
        "method": method,
        "target": target,
        "headers": headers,
        "bytes": size,
        "sha": digest,
        "pid": os.getpid(),
        "connection": number,
    }
    writer.write(
        b"HTTP/1.1 200 OK\r\n"
        + EXTRA_HEADERS.get(kind, b"")
        + content_length_and_body(json.dumps(told).encode(), method)
    )
    await writer.drain()
    return True


def content_length_and_body(body: bytes, method: str) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + (b"" if method == "HEAD" else body)


async def read_body(reader: asyncio.StreamReader, headers: dict[str, str]) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    if headers.get("transfer-encoding") == "chunked":
        while length := int((await reader.readline()).strip(), 16):
            digest.update(await reader.readexactly(length))
            size += length
            await reader.readline()
        await reader.readline()
        return size, digest.hexdigest()
    left = int(headers.get("content-length", 0))
    while left:
        part = await reader.read(min(left, 1 << 20))
        digest.update(part)
        left, size = left - len(part), size + len(part)
    return size, digest.hexdigest()


async def send_in_parts(writer: asyncio.StreamWriter) -> None:
    """The second part comes only once somebody who has read the first asks for it."""
    released.clear()
    writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n")
    await writer.drain()
    await released.wait()
    writer.write(b"6\r\nsecond\r\n0\r\n\r\n")
    await writer.drain()


async def send_large_body(writer: asyncio.StreamWriter, size: int) -> bool:
    """Ends with the connection, as old servers do."""
    writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    for _ in range(size // len(BODY_BLOCK)):
        writer.write(BODY_BLOCK)
        await writer.drain()
    return False


EXTRA_HEADERS = {
    "cookies": b"Set-Cookie: a=1; Path=/; HttpOnly\r\nSet-Cookie: b=2\r\n"
    b"Set-Cookie: helio_session=evil; Path=/\r\n"
    b"Set-Cookie: __Host-helio_session=evil\r\nSet-Cookie: c=3; Domain=example.org; Path=/deep\r\n"
    b"Clear-Site-Data: *\r\nStrict-Transport-Security: max-age=9\r\nKeep-Alive: 5\r\nX-Gone: 1\r\n"
    b"Connection: x-gone, keep-alive\r\nX-Two: 1\r\nX-Two: 2\r\n",
    "moved": b"Location: /elsewhere\r\n",
}


async def main() -> None:
    address = sys.argv[2] if len(sys.argv) > 2 else "127.0.0.1:0"
    host, _, port = address.rpartition(":")
    server = await asyncio.start_server(handle_connection, host, int(port), reuse_port=True)
    if sys.argv[1] == "ignored":
        await server.serve_forever()
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    await server.serve_forever()


asyncio.run(main())
