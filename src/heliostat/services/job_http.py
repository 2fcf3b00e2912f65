"""HTTP GET requests to untrusted servers inside jobs, with a deadline and a limit of bytes."""

import http.client
import io
import socket
from collections.abc import Mapping
from typing import cast

from heliostat.engines.contract import Endpoint

_MAX_LINE_BYTES = 1000


def http_get(
    endpoint: Endpoint, path: str, headers: Mapping[str, str], seconds: float, max_bytes: int
) -> tuple[int, bytes]:
    """Status and content. Raises what `Endpoint.exchange` does, and http.client.HTTPException."""
    data = endpoint.exchange(_request(path, headers), seconds, max_bytes)
    response = http.client.HTTPResponse(cast("socket.socket", _ReceivedBytes(data)))
    response.begin()
    return response.status, response.read()


def http_get_status(endpoint: Endpoint, path: str, headers: Mapping[str, str], seconds: float) -> int:
    """The status; 0: the response is not HTTP. Raises what `Endpoint.exchange` does."""
    parts = endpoint.exchange(_request(path, headers), seconds, _MAX_LINE_BYTES, first_line=True).split()
    return int(parts[1]) if len(parts) > 1 and parts[0].startswith(b"HTTP/1.") and parts[1].isdigit() else 0


def _request(path: str, headers: Mapping[str, str]) -> bytes:
    all_headers = {"Host": "127.0.0.1", "Connection": "close", **headers}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in all_headers.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


class _ReceivedBytes:
    """Received data in place of the socket that `HTTPResponse` expects."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
