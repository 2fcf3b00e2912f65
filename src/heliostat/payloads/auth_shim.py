"""Auth shim: access control, inside a session, for servers without authentication of their own.

Such a server listens on a Unix socket in a private folder of its user. The shim listens on the session's port and
forwards a connection if its first request carries the session's secret, which only the proxy has.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import socket
import sys
import threading

MAX_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
FORBIDDEN = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
UNAVAILABLE = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def serve_auth_shim(path: str, secret: str) -> int:
    """Start the shim in threads and return its port. It runs until the process ends."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(128)
    threading.Thread(target=accept_clients, args=(listener, path, secret), daemon=True).start()
    return int(listener.getsockname()[1])


def is_listening(path: str) -> bool:
    """Whether a server listens on this socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def accept_clients(listener: socket.socket, path: str, secret: str) -> None:
    while True:
        client, _ = listener.accept()
        threading.Thread(target=handle_client, args=(client, path, secret), daemon=True).start()


def handle_client(client: socket.socket, path: str, secret: str) -> None:
    with client, contextlib.suppress(OSError):
        client.settimeout(HEAD_SECONDS)
        head = read_head(client)
        if not has_secret(head, secret):
            client.sendall(FORBIDDEN)
            return
        client.settimeout(None)
        with socket.socket(socket.AF_UNIX) as server:
            try:
                server.connect(path)
            except OSError:
                client.sendall(UNAVAILABLE)
                return
            server.sendall(head)
            back = threading.Thread(target=copy_stream, args=(server, client), daemon=True)
            back.start()
            copy_stream(client, server)
            back.join()


def read_head(client: socket.socket) -> bytes:
    """The request head, and any bytes of the body received with it."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_BYTES:
        more = client.recv(16 * 1024)
        if not more:
            break
        head += more
    return head


def has_secret(head: bytes, secret: str) -> bool:
    expected = b"bearer " + secret.encode()
    lines = head.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(b":") for line in lines)]
    values = [value for name, value in pairs if name == b"authorization"]
    return len(values) == 1 and hmac.compare_digest(values[0][:7].lower() + values[0][7:], expected)


def copy_stream(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        for data in iter(lambda: source.recv(64 * 1024), b""):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def socket_path(folder: str) -> str:
    """A path within the kernel's length limit, in a folder that only the user can enter."""
    path = os.path.join(folder, "s")
    if len(path) > 100:
        print(f"The socket path {path} is too long. Set TMPDIR to a shorter path.", file=sys.stderr)
        sys.exit(1)
    return path
