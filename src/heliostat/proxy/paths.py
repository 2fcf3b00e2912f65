"""From an address to what it leads to. Bytes as they came: what is checked is what is forwarded."""

import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from heliostat.models.sessions import ProxyTarget, parse_proxy_target

_PATH = re.compile(rb"/s/([0-9]{1,15}(?:-[0-9]{1,5})?|[a-z][a-z0-9-]{0,39})(/.*)?", re.DOTALL)
_ODD = re.compile(rb"[\x00-\x20\x7f-\xff#\\]")


@dataclass(frozen=True, slots=True)
class ParsedPath:
    """What an address asks for."""

    target: ProxyTarget
    inner_path: bytes  # of the path, with its slash; empty: the slash itself is missing
    query: bytes

    def upstream_path(self, keeps_prefix: bool) -> bytes:
        """As the server inside is asked."""
        path = self.target.path_prefix.encode().rstrip(b"/") + self.inner_path if keeps_prefix else self.inner_path
        return path + (b"?" + self.query if self.query else b"")


def parse_path(raw_path: bytes, query: bytes) -> ParsedPath | None:
    """None: it leads nowhere. No path climbs: `..` in any spelling, and a second meaning of it, leads nowhere."""
    found = _PATH.fullmatch(raw_path)
    if found is None or _ODD.search(raw_path) or _ODD.search(query):
        return None
    target = parse_proxy_target(found[1].decode())
    rest = found[2] or b""
    if target is None or _climbs(rest):
        return None
    return ParsedPath(target, rest, query)


def parse_target_host(host: bytes, pattern: str) -> ProxyTarget | None:
    """With a host name for each target ("*.sessions.example.org"): whose this one is."""
    name = host.decode("latin-1").lower().rpartition(":")[0] or host.decode("latin-1").lower()
    ending = pattern.partition("*")[2].partition(":")[0].lower()
    if not ending or not name.endswith(ending):
        return None
    return parse_proxy_target(name[: -len(ending)])


def _climbs(path: bytes) -> bool:
    """Decoded twice, for a server that does so too; a file may have any name but these two."""
    if b"." not in path and b"%" not in path:
        return False
    decoded = unquote_to_bytes(unquote_to_bytes(path)).replace(b"\\", b"/")
    return any(part in (b".", b"..") for part in decoded.split(b"/"))
