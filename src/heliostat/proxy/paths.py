"""Parsing of proxy URLs into targets. Bytes are kept unchanged, so that the checked path is the forwarded path."""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from heliostat.models.sessions import ProxyTarget, parse_proxy_target

_PATH = re.compile(rb"/s/([0-9]{1,15}(?:-[0-9]{1,5})?|[a-z][a-z0-9-]{0,39})(/.*)?", re.DOTALL)
_FORBIDDEN = re.compile(rb"[\x00-\x20\x7f-\xff#\\]")


@dataclass(frozen=True, slots=True)
class ParsedPath:
    """Target and inner path of a URL."""

    target: ProxyTarget
    inner_path: bytes  # with its leading slash; empty: the slash is missing
    query: bytes

    def upstream_path(self, keeps_prefix: bool) -> bytes:
        """The path for the server in the job."""
        path = self.target.path_prefix.encode().rstrip(b"/") + self.inner_path if keeps_prefix else self.inner_path
        return path + (b"?" + self.query if self.query else b"")


def parse_path(raw_path: bytes, query: bytes) -> ParsedPath | None:
    """None: not a valid target. Paths with `..` in any encoding, also double-encoded, are invalid."""
    match = _PATH.fullmatch(raw_path)
    if match is None or _FORBIDDEN.search(raw_path) or _FORBIDDEN.search(query):
        return None
    target = parse_proxy_target(match[1].decode())
    rest = match[2] or b""
    if target is None or _has_dot_segments(rest):
        return None
    return ParsedPath(target, rest, query)


def parse_target_host(host: bytes, pattern: str) -> ProxyTarget | None:
    """The target of a host name, with one host name per target ("*.sessions.example.org")."""
    name = host.decode("latin-1").lower().rpartition(":")[0] or host.decode("latin-1").lower()
    ending = pattern.partition("*")[2].partition(":")[0].lower()
    if not ending or not name.endswith(ending):
        return None
    return parse_proxy_target(name[: -len(ending)])


def _has_dot_segments(path: bytes) -> bool:
    """Decoded twice, because some servers also decode twice."""
    if b"." not in path and b"%" not in path:
        return False
    decoded = unquote_to_bytes(unquote_to_bytes(path)).replace(b"\\", b"/")
    return any(part in (b".", b"..") for part in decoded.split(b"/"))
