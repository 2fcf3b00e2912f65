"""HTTP requests of our own to servers inside jobs, which may be anything: one deadline, and a limit of bytes."""

import http.client
import io
import socket
from collections.abc import Mapping
from typing import cast

from heliostat.engines.contract import Endpoint

_LONGEST_LINE = 1000


def http_get(
    endpoint: Endpoint, path: str, headers: Mapping[str, str], seconds: float, most: int
) -> tuple[int, bytes]:
    """Status and content. Raises what `Endpoint.exchange` does, and http.client.HTTPException."""
    told = endpoint.exchange(_request(path, headers), seconds, most)
    answer = http.client.HTTPResponse(cast("socket.socket", _Told(told)))
    answer.begin()
    return answer.status, answer.read()


def http_get_status(endpoint: Endpoint, path: str, headers: Mapping[str, str], seconds: float) -> int:
    """0: what it answers is no HTTP. Raises what `Endpoint.exchange` does."""
    words = endpoint.exchange(_request(path, headers), seconds, _LONGEST_LINE, first_line=True).split()
    return int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit() else 0


def _request(path: str, headers: Mapping[str, str]) -> bytes:
    shown = {"Host": "127.0.0.1", "Connection": "close", **headers}
    lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in shown.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


class _Told:
    """What was heard, where a socket is wanted."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)
