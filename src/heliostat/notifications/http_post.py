"""HTTP POST of a notification.

Written without an HTTP client library: it connects to the checked IP address, follows no redirect, uses no proxy,
and one deadline limits the whole exchange, even if the receiver is slow.
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
    """Returns once the receiver has accepted it. Raises DeliveryFailed."""
    target = parse_webhook_url(url)
    family, place = resolve_address(notifications, target)
    deadline = time.monotonic() + seconds
    try:
        with _connect(target, family, place, deadline) as connection:
            _send(connection, _format_request(target, body, headers), deadline)
            _check_status(_read_status(connection, deadline), target)
    except TimeoutError:
        raise DeliveryFailed(f"{target.url_host} did not respond within {seconds:g} s") from None
    except ssl.SSLError as error:
        raise DeliveryFailed(
            f"the TLS connection to {target.url_host} failed: {error.reason or 'unknown error'}"
        ) from None
    except OSError as error:
        raise DeliveryFailed(f"{target.url_host} cannot be reached: {error.strerror or 'no connection'}") from None


def _connect(
    target: WebhookUrl, family: socket.AddressFamily, place: tuple[str, int], deadline: float
) -> socket.socket:
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(_seconds_left(deadline))
        connection.connect(place)
        if target.scheme == "http":
            return connection
        connection.settimeout(_seconds_left(deadline))
        return ssl.create_default_context().wrap_socket(connection, server_hostname=target.host)
    except BaseException:
        connection.close()
        raise


def _format_request(target: WebhookUrl, body: bytes, headers: Mapping[str, str]) -> bytes:
    default_port = {"http": 80, "https": 443}[target.scheme]
    host = target.url_host if target.port == default_port else f"{target.url_host}:{target.port}"
    fixed = {"Host": host, "User-Agent": "Heliostat", "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {value}" for name, value in {**fixed, **headers}.items())]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _send(connection: socket.socket, data: bytes, deadline: float) -> None:
    view = memoryview(data)
    while view:
        connection.settimeout(_seconds_left(deadline))
        view = view[connection.send(view) :]


def _read_status(connection: socket.socket, deadline: float) -> int:
    """From the first line; the rest of the response is not read."""
    line = b""
    while b"\n" not in line and len(line) < _LONGEST_LINE:
        connection.settimeout(_seconds_left(deadline))
        part = connection.recv(_LONGEST_LINE)
        if not part:
            break
        line += part
    words = line.split(b"\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise DeliveryFailed("the response is not HTTP")
    return int(words[1])


def _check_status(status: int, target: WebhookUrl) -> None:
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise DeliveryFailed(f"{target.url_host} responded with a redirect ({status}); redirects are not followed")
    if status == _GONE:
        raise DeliveryFailed(f"{target.url_host} responded that the address is gone ({status})", is_final=True)
    raise DeliveryFailed(f"{target.url_host} responded with status {status}")


def _seconds_left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
