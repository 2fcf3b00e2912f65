"""One HTTP request that tells something and wants to know nothing but whether it was taken.

Our own few lines rather than a client: the address we have checked is the one we connect to, no redirect is
followed, no proxy asked, and one deadline holds for everything, however slowly the other side speaks.
"""

import socket
import ssl
import time
from collections.abc import Mapping

from heliostat.config import Settings
from heliostat.notices.addresses import Target, Undelivered, read_url, resolve

SECONDS = 10.0
_LONGEST_LINE = 4096
_GONE = 410


def post(settings: Settings, url: str, body: bytes, headers: Mapping[str, str], seconds: float = SECONDS) -> None:
    """Returns once the other side has taken it. Raises Undelivered."""
    target = read_url(url)
    family, place = resolve(settings, target)
    deadline = time.monotonic() + seconds
    try:
        with _connected(target, family, place, deadline) as connection:
            _send(connection, _request(target, body, headers), deadline)
            _judge(_status(connection, deadline), target)
    except TimeoutError:
        raise Undelivered(f"{target.named} did not answer within {seconds:g} s") from None
    except ssl.SSLError as error:
        raise Undelivered(f"{target.named} cannot be trusted: {error.reason or 'TLS failed'}") from None
    except OSError as error:
        raise Undelivered(f"{target.named} cannot be reached: {error.strerror or 'no connection'}") from None


def _connected(
    target: Target, family: socket.AddressFamily, place: tuple[str, int], deadline: float
) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(_left(deadline))
        connection.connect(place)
        if target.scheme == "http":
            return connection
        connection.settimeout(_left(deadline))
        return ssl.create_default_context().wrap_socket(connection, server_hostname=target.host)
    except BaseException:
        connection.close()
        raise


def _request(target: Target, body: bytes, headers: Mapping[str, str]) -> bytes:
    usual = {"http": 80, "https": 443}[target.scheme]
    host = target.named if target.port == usual else f"{target.named}:{target.port}"
    fixed = {"Host": host, "User-Agent": "Heliostat", "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**fixed, **headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        connection.settimeout(_left(deadline))
        view = view[connection.send(view) :]


def _status(connection: socket.socket, deadline: float) -> int:
    """Of the first line; what follows is of no interest."""
    line = b""
    while b"\n" not in line and len(line) < _LONGEST_LINE:
        connection.settimeout(_left(deadline))
        part = connection.recv(_LONGEST_LINE)
        if not part:
            break
        line += part
    words = line.split(b"\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise Undelivered("what answered there does not speak HTTP")
    return int(words[1])


def _judge(status: int, target: Target) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise Undelivered(f"{target.named} sends us elsewhere ({status}); redirects are not followed")
    if status == _GONE:
        raise Undelivered(f"{target.named} says that it is gone for ever ({status})", is_final=True)
    raise Undelivered(f"{target.named} answered {status}")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
