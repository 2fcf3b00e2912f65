"""One HTTP request that tells something and wants to know nothing but whether it was taken.

Our own few lines rather than a client: the address we have checked is the one we connect to, no redirect is
followed, no proxy asked, and one deadline holds for everything, however slowly the other side speaks.
"""

import socket
import ssl
import time
from collections.abc import Mapping

from heliostat.config import NotificationSettings
from heliostat.notifications.addresses import DeliveryFailed, WebhookUrl, parse_webhook_url, resolve_address

TIMEOUT_SECONDS = 10.0
_LONGEST_LINE = 4096
_GONE = 410


def send_http_post(
    notifications: NotificationSettings,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    seconds: float = TIMEOUT_SECONDS,
) -> None:
    """Returns once the other side has taken it. Raises Undelivered."""
    target = parse_webhook_url(url)
    family, place = resolve_address(notifications, target)
    deadline = time.monotonic() + seconds
    try:
        with _connected(target, family, place, deadline) as connection:
            _send(connection, _request(target, body, headers), deadline)
            _judge(_status(connection, deadline), target)
    except TimeoutError:
        raise DeliveryFailed(f"{target.url_host} did not answer within {seconds:g} s") from None
    except ssl.SSLError as error:
        raise DeliveryFailed(f"{target.url_host} cannot be trusted: {error.reason or 'TLS failed'}") from None
    except OSError as error:
        raise DeliveryFailed(f"{target.url_host} cannot be reached: {error.strerror or 'no connection'}") from None


def _connected(
    target: WebhookUrl, family: socket.AddressFamily, place: tuple[str, int], deadline: float
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


def _request(target: WebhookUrl, body: bytes, headers: Mapping[str, str]) -> bytes:
    usual = {"http": 80, "https": 443}[target.scheme]
    host = target.url_host if target.port == usual else f"{target.url_host}:{target.port}"
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
        raise DeliveryFailed("what answered there does not speak HTTP")
    return int(words[1])


def _judge(status: int, target: WebhookUrl) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise DeliveryFailed(f"{target.url_host} sends us elsewhere ({status}); redirects are not followed")
    if status == _GONE:
        raise DeliveryFailed(f"{target.url_host} says that it is gone for ever ({status})", is_final=True)
    raise DeliveryFailed(f"{target.url_host} answered {status}")


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
