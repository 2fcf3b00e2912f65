"""The client of a request: its address and, for a process on this machine, its Unix user.

10.0.0.5                  another machine
127.0.0.1 (uid 1000)      this machine: the kernel names the user of the connection
"""

import ipaddress
import os
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from heliostat.auth.unix_accounts import FIRST_HUMAN_UID
from heliostat.socket_queries import NetlinkUnavailable, query_connection_owner

_MAX_LENGTH = 64
_UNIX_USER = re.compile(r" \((uid (?:[0-9]+|unknown))\)\Z")  # as in ClientAddress and describe_client
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


@dataclass(frozen=True, slots=True)
class Connection:
    """The two ends of a TCP connection to this server."""

    client: tuple[str, int]
    server: tuple[str, int]


@dataclass(frozen=True, slots=True)
class ClientAddress:
    ip: str
    uid: int | None = None  # None: another machine, or unknown; -1: the connection is closed
    is_proxied: bool = False  # a trusted proxy reported the address

    def __str__(self) -> str:
        return self.ip if self.uid is None else f"{self.ip} (uid {self.uid if self.uid >= 0 else 'unknown'})"


def find_client(connection: Connection, forwarded_for: str, trusted_proxies: Sequence[str]) -> ClientAddress:
    """`forwarded_for`: the X-Forwarded-For headers, joined by commas. Only a trusted proxy is believed."""
    ip = _plain_ip(connection.client[0])
    uid = _find_uid(connection)
    networks = _parse_networks(tuple(trusted_proxies))
    if forwarded_for and _is_in(ip, networks) and _may_be_proxy(uid):
        return ClientAddress(_first_untrusted(forwarded_for, networks) or ip, is_proxied=True)
    return ClientAddress(ip, uid)


def is_trusted_proxy(connection: Connection, trusted_proxies: Sequence[str]) -> bool:
    """Whether the connection itself comes from a trusted proxy."""
    is_named = _is_in(_plain_ip(connection.client[0]), _parse_networks(tuple(trusted_proxies)))
    return is_named and _may_be_proxy(_find_uid(connection))


def describe_client(scope: Mapping[str, Any]) -> str:
    """The client of an ASGI request, whose `client` is that of `find_client`; or the user of the Unix socket."""
    if client := scope.get("client"):
        return str(client[0])
    uid = scope.get("state", {}).get("peer_uid")
    return "local socket" if uid is None else f"local socket (uid {uid})"


def network_of(address: str) -> str:
    """The range that one person can control: a Unix user, an address, the /64 network of an IPv6 address, or all
    of 127.0.0.0/8, from which every process on this machine can connect."""
    if user := _UNIX_USER.search(address):
        return user[1]
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:_MAX_LENGTH]
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is None:
            return str(ipaddress.ip_network((parsed, 64), strict=False))
        parsed = parsed.ipv4_mapped
    return "127.0.0.0/8" if parsed.is_loopback else str(parsed)


def can_identify_local_users() -> bool:
    """Whether the kernel names the user of a connection from this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address) as client:
            return _find_uid(Connection(client.getsockname()[:2], address)) == os.geteuid()


def _find_uid(connection: Connection) -> int | None:
    client, server = (_plain_ip(connection.client[0]), connection.client[1]), connection.server
    try:
        return query_connection_owner(client, (_plain_ip(server[0]), server[1]))
    except NetlinkUnavailable:
        return None


def _may_be_proxy(uid: int | None) -> bool:
    """On this machine, only a service: any user can connect from its addresses."""
    return uid is None or 0 <= uid < FIRST_HUMAN_UID or uid == os.geteuid()


def _first_untrusted(forwarded_for: str, networks: Sequence[_Network]) -> str:
    """The last address that no trusted proxy has: earlier ones are claims of the client. Empty: there is none."""
    for text in reversed(forwarded_for.split(",")):
        ip = _plain_ip(text.strip())
        if not _is_ip(ip):
            return ""
        if not _is_in(ip, networks):
            return ip
    return ""


def _plain_ip(text: str) -> str:
    """Without the IPv6 prefix of an IPv4 address, and without a zone."""
    text = text.partition("%")[0]
    return text.removeprefix("::ffff:") if "." in text else text


def _is_ip(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _is_in(ip: str, networks: Sequence[_Network]) -> bool:
    return bool(networks) and _is_ip(ip) and any(ipaddress.ip_address(ip) in network for network in networks)


@lru_cache(maxsize=16)
def _parse_networks(texts: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(text, strict=False) for text in texts)
