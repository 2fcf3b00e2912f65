"""Where notifications may be sent: hosts and domains that admins allow, at addresses that are nobody's inside."""

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
_TRANSLATED = ip_network("64:ff9b::/96")  # holds an IPv4 address that we do not see


class DeliveryFailed(Exception):
    """It did not arrive, in words that may be shown to whoever wants to be told."""

    def __init__(self, problem: str, *, is_final: bool = False) -> None:
        super().__init__(problem)
        self.problem = problem
        self.is_final = is_final  # no further try will do better


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """The parts of a URL."""

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
    """As it is kept. Raises Invalid, with what an admin would have to allow."""
    if channel is NotificationChannel.EMAIL:
        return _checked_mail(notifications, address)
    target = parse_webhook_url(address)
    if not _is_allowed(notifications, target):
        allowed = ", ".join(notifications.hosts) or "none yet"
        name = target.url_host if target.port == _PORTS[target.scheme] else f"{target.url_host}:{target.port}"
        raise _invalid(
            f"notifications may not be posted to {name}",
            f'Allowed are: {allowed}. An admin can allow it in [notifications]: hosts = ["{name}"].',
        )
    return address.strip()


def parse_webhook_url(text: str) -> WebhookUrl:
    """Strictly: what two programs could read differently is refused. Raises Invalid."""
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
        raise _invalid("must begin with https:// or http:// and the name of a host", hint)
    if "@" in parts.netloc or parts.fragment or port == 0:
        raise _invalid("must hold no name, password or fragment", hint)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return WebhookUrl(parts.scheme, parts.hostname, port or _PORTS[parts.scheme], path)


def resolve_address(
    notifications: NotificationSettings, target: WebhookUrl
) -> tuple[socket.AddressFamily, tuple[str, int]]:
    """Where to connect: looked up once, and checked. Raises Undelivered."""
    if not _is_allowed(notifications, target):
        raise DeliveryFailed(f"admins no longer allow notifications to {target.url_host}", is_final=True)
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise DeliveryFailed(f"there is no host {target.url_host}") from None
    for family, _, _, _, place in found:
        if family in (socket.AF_INET, socket.AF_INET6) and _may_be_reached(notifications, str(place[0])):
            return family, (str(place[0]), target.port)
    raise DeliveryFailed(
        f"{target.url_host} is at a private address;"
        " an admin can allow its network with networks in [notifications]"
    )


def redact_address(channel: NotificationChannel, address: str) -> str:
    """What may be shown again: the path of a URL may be a secret."""
    return address if channel is NotificationChannel.EMAIL else parse_webhook_url(address).redacted


def _is_allowed(notifications: NotificationSettings, target: WebhookUrl) -> bool:
    usual = target.port == _PORTS[target.scheme]
    return any(_fits(pattern.lower(), target.host.lower(), target.port, usual) for pattern in notifications.hosts)


def _fits(pattern: str, host: str, port: int, usual: bool) -> bool:
    """A port that is not the usual one must be named."""
    name, colon, number = pattern.partition(":")
    if not (port == int(number) if colon else usual):
        return False
    return name in ("*", host) or (name.startswith("*.") and host.endswith(name[1:]))


def _may_be_reached(notifications: NotificationSettings, text: str) -> bool:
    address: IPv4Address | IPv6Address = ip_address(text.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        elif address.sixtofour or address.teredo or address in _TRANSLATED:
            return False
    networks = [ip_network(one, strict=False) for one in notifications.networks]
    if any(address in network for network in networks):
        return True
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _checked_mail(notifications: NotificationSettings, address: str) -> str:
    address = address.strip()
    found = _MAIL.fullmatch(address)
    if notifications.smtp_host is None:
        hint = "An admin can set smtp_host in [notifications]; until then take a webhook."
        raise _invalid("this Heliostat sends no e-mail", hint)
    if found is None or len(address) > 254 or ".." in address:
        raise _invalid("is not an address of e-mail", "Write one: ada@example.org.")
    if found[1].lower() not in {one.lower() for one in notifications.mail_domains}:
        allowed = ", ".join(notifications.mail_domains) or "none yet"
        raise _invalid(
            f"no e-mail is sent to {found[1]}",
            f'Allowed are: {allowed}. An admin can allow it in [notifications]: mail_domains = ["{found[1]}"].',
        )
    return address


def _invalid(what: str, hint: str) -> Invalid:
    return Invalid(f"address: {what}.", hint, fields={"address": what})
