"""What stands behind the proxies: as quick as Python allows, so that they are what is measured. Run as a script.

usage: proxied_server.py PORT_FILE
"""

import asyncio
import os
import sys

import uvloop

SMALL_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12\r\n\r\nhello, world"
UPGRADE_RESPONSE = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
BLOCK = b"x" * 262144


class ProxyTargetServer(asyncio.Protocol):
    """GET small answers, GET BYTES of a download, POST swallows, an upgrade echoes what follows."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.unparsed = b""
        self.echoes = False
        self.upload_bytes_left = 0  # of an upload
        self.download_bytes_left = 0  # of a download

    def data_received(self, data: bytes) -> None:
        if self.echoes:
            self.transport.write(data)
        elif self.upload_bytes_left:
            self.discard(data)
        else:
            self.unparsed += data
            if b"\r\n\r\n" in self.unparsed:
                self.answer()

    def answer(self) -> None:
        head, _, rest = self.unparsed.partition(b"\r\n\r\n")
        self.unparsed = b""
        lower = head.lower()
        if b"upgrade: websocket" in lower:
            self.echoes = True
            self.transport.write(UPGRADE_RESPONSE + rest)
        elif head.startswith(b"POST"):
            self.upload_bytes_left = int(lower.partition(b"content-length:")[2].partition(b"\r\n")[0])
            self.discard(rest)
        elif b"bytes=" in head.partition(b"\r\n")[0]:
            self.download_bytes_left = int(head.partition(b"bytes=")[2].partition(b" ")[0])
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % self.download_bytes_left)
            self.send_more()
        else:
            self.transport.write(SMALL_RESPONSE)

    def discard(self, data: bytes) -> None:
        self.upload_bytes_left -= len(data)
        if not self.upload_bytes_left:
            self.transport.write(SMALL_RESPONSE)

    def send_more(self) -> None:
        self.full = False
        while self.download_bytes_left and not self.full:
            part = min(self.download_bytes_left, len(BLOCK))
            self.download_bytes_left -= part
            self.transport.write(BLOCK[:part])

    def pause_writing(self) -> None:
        self.full = True

    def resume_writing(self) -> None:
        self.send_more()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(ProxyTargetServer, "127.0.0.1", 0)
    with open(sys.argv[1] + ".new", "w", encoding="ascii") as file:
        file.write(str(server.sockets[0].getsockname()[1]))
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    await server.serve_forever()


uvloop.run(main())
