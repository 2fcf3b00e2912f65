"""A server that says what a test has written down, byte for byte."""

import socket
import threading
from pathlib import Path
from typing import Any

from heliostat.client import Client


class StandInServer:
    """Answers requests in order on a Unix socket. An answer of None closes the connection instead."""

    def __init__(self, home: Path, answers: list[bytes | None]) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self._answers = list(answers)
        self._socket = socket.socket(socket.AF_UNIX)
        home.mkdir(parents=True, exist_ok=True)
        self._bind(home)
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.close()

    def _bind(self, home: Path) -> None:
        import os

        directory = os.open(home, os.O_PATH)
        try:
            self._socket.bind(f"/proc/self/fd/{directory}/heliostat.sock")
        finally:
            os.close(directory)

    def _serve(self) -> None:
        while self._answers:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            with connection:
                self._talk(connection)

    def _talk(self, connection: socket.socket) -> None:
        while self._answers:
            request = _read_request(connection)
            if not request:
                return
            self.requests.append(request)
            answer = self._answers.pop(0)
            if answer is None:
                return
            connection.sendall(answer)
            if b"Connection: close" in answer:
                return
        _read_request(connection)


def answer(body: Any = None, status: int = 200, **headers: str) -> bytes:
    import json

    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    extra = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status} X\r\nContent-Length: {len(content)}\r\n{extra}\r\n".encode() + content


def stream(text: str) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + text.encode()


def connect(home: Path) -> Client:
    return Client(home=home)


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        received = connection.recv(65536)
        if not received:
            return b""
        data += received
    head, _, body = data.partition(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        if line.lower().startswith(b"content-length:"):
            while len(body) < int(line.split(b":")[1]):
                body += connection.recv(65536)
    return head + b"\r\n\r\n" + body
