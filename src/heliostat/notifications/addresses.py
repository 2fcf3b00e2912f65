"""Checks of notification addresses: hosts and mail domains allowed by admins, no private IP addresses."""

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from heliostat.config import NotificationSettings
from heliostat.errors import Invalid
from heliostat.models.notifications import NotificationChannel

_LONGEST = 2000
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9a-f:.]{2,45}", re.ASCII)
_PATH = re.compile(r"[!-~]*", re.ASCII)
_MAIL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}@([A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)", re.ASCII)
_TRANSLATED = ip_network("64:ff9b::/96")  # NAT64: contains an IPv4 address that is not checked


class DeliveryFailed(Exception):
    """A message was not delivered. Its problem may be shown to the owner of the notification."""

    def __init__(self, problem: str, *, is_final: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_final = is_final  # retries cannot succeed


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """A parsed URL."""

    scheme: str
    host: str
    port: int
    path: str  # with its query

    @property
    def redacted(self) -> str:
        """Without its path, which may be a secret."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.url_host}{port}/…"

    @property
    def url_host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host


def check_address(notifications: NotificationSettings, channel: NotificationChannel, address: str) -> str:
    """The address to store. Raises Invalid, with a hint for the admin."""
    if channel is NotificationChannel.EMAIL:
        return _checked_mail(notifications, address)
    target = parse_webhook_url(address)
    if not _is_allowed(notifications, target):
        allowed = ", ".join(notifications.hosts) or "none yet"
        name = target.url_host if target.port == _PORTS[target.scheme] else f"{target.url_host}:{target.port}"
        raise _invalid(
            f"notifications may not be sent to {name}",
            f'Allowed hosts: {allowed}. An admin can allow it in [notifications]: hosts = ["{name}"].',
        )
    return address.strip()


def parse_webhook_url(text: str) -> WebhookUrl:
    """Strict: URLs that two programs could parse differently are refused. Raises Invalid."""
    text = text.strip()
    hint = "Write a URL: https://hooks.example.org/services/…"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise _invalid("is not a URL", hint) from None
    if len(text) > _LONGEST or not _PATH.fullmatch(text) or "\\" in text:
        raise _invalid(f"must be a URL of at most {_LONGEST} visible ASCII characters", hint)
    if parts.scheme not in _PORTS or not parts.hostname or not _HOST.fullmatch(parts.hostname):
        raise _invalid("must begin with https:// or http:// and a host name", hint)
    if "@" in parts.netloc or parts.fragment or port == 0:
        raise _invalid("must not contain a user name, a password or a fragment", hint)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path)


def resolve_address(
    notifications: NotificationSettings, target: WebhookUrl
) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """The IP address to connect to, resolved once and checked. Raises DeliveryFailed."""
    if not _is_allowed(notifications, target):
        raise DeliveryFailed(f"admins no longer allow notifications to {target.url_host}", is_final=True)
    try:
        addresses = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DeliveryFailed(f"the host {target.url_host} does not exist") from None
    for family, _, _, _, place in addresses:
        if family in (socket.AF_INET, socket.AF_INET6) and _is_permitted_ip(notifications, str(place[0])):
            return family, (str(place[0]), target.port)
    raise DeliveryFailed(
        f"{target.url_host} has a private address; an admin can allow its network with networks in [notifications]"
    )


def redact_address(channel: NotificationChannel, address: str) -> str:
    """The address without the path of a URL, which may be a secret."""
    return address if channel is NotificationChannel.EMAIL else parse_webhook_url(address).redacted


def _is_allowed(notifications: NotificationSettings, target: WebhookUrl) -> bool:
    is_default = target.port == _PORTS[target.scheme]
    return any(
        _matches(pattern.lower(), target.host.lower(), target.port, is_default) for pattern in notifications.hosts
    )


def _matches(pattern: str, host: str, port: int, is_default_port: bool) -> bool:
    """A pattern without a port allows only the default port."""
    name, colon, number = pattern.partition(":")
    if not (port == int(number) if colon else is_default_port):
        return False
    return name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:]))


def _is_permitted_ip(notifications: NotificationSettings, ip: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(ip.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address.sixtofour or address.teredo or address in _TRANSLATED:
            return False
    networks = [ip_network(text, strict=False) for text in notifications.networks]
    if any(address in network for network in networks):
        return True
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _checked_mail(notifications: NotificationSettings, address: str) -> str:
    address = address.strip()
    match = _MAIL.fullmatch(address)
    if notifications.smtp_host is None:
        hint = "An admin can set smtp_host in [notifications]. A webhook works without it."
        raise _invalid("this server sends no e-mail", hint)
    if match is None or len(address) > 254 or ".." in address:
        raise _invalid("is not an e-mail address", "Write an address such as ada@example.org.")
    if match[1].lower() not in {domain.lower() for domain in notifications.mail_domains}:
        allowed = ", ".join(notifications.mail_domains) or "none yet"
        raise _invalid(
            f"e-mails may not be sent to {match[1]}",
            f'Allowed: {allowed}. An admin can allow it in [notifications]: mail_domains = ["{match[1]}"].',
        )
    return address


def _invalid(problem: str, hint: str) -> Invalid:
    return Invalid(f"address: {problem}.", hint, fields={"address": problem})
