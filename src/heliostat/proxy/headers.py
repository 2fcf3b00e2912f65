"""Header rules of the proxy: pure functions over lists of (name, value) with lowercase names.

Order and repetition are kept. Hop-by-hop headers and Heliostat's own headers are never forwarded, and headers of a
server in a job must not affect other paths in the browser.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

Header = tuple[bytes, bytes]
Headers = Sequence[Header]

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# They define the end, destination and type of a message: a `Connection` header cannot remove them.
_NEVER_HOP_BY_HOP = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"content-range", b"host", b"origin"}
)
_OWN_HEADERS = frozenset({b"authorization", b"cookie", b"expect", b"forwarded", b"x-real-ip"})
# They affect the whole host: other sessions and the control plane.
_HOST_WIDE = frozenset({b"clear-site-data", b"strict-transport-security", b"alt-svc", b"service-worker-allowed"})
UPGRADE_HEADERS: tuple[Header, ...] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
_OWN_COOKIE_PREFIXES = (b"helio_", b"__host-helio_", b"__secure-helio_")


@dataclass(frozen=True, slots=True)
class ForwardingContext:
    """Properties of the target that the rules depend on."""

    prefix: bytes  # "/s/12/": its path for the browser
    keeps_prefix: bool  # the server in the job also uses the prefix; otherwise it is at "/"
    scheme: bytes
    host: bytes  # as sent by the browser
    client: bytes
    authorization: bytes | None = None  # for the server in the job


def filter_request_headers(headers: Headers, forwarding: ForwardingContext) -> list[Header]:
    """Headers for the server in the job. Host and Origin stay as sent by the browser, so that they match."""
    dropped = _HOP_BY_HOP | _named_in_connection(headers) | _OWN_HEADERS
    kept = [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith((b"x-forwarded-", b"x-heliostat-"))
    ]
    kept += [(b"cookie", value) for value in _cookies(headers)]
    if forwarding.authorization is not None:
        kept.append((b"authorization", forwarding.authorization))
    kept += [
        (b"x-forwarded-for", forwarding.client),
        (b"x-forwarded-host", forwarding.host),
        (b"x-forwarded-proto", forwarding.scheme),
    ]
    if not forwarding.keeps_prefix:
        kept.append((b"x-forwarded-prefix", forwarding.prefix.rstrip(b"/")))
    return kept


def filter_response_headers(headers: Headers, forwarding: ForwardingContext) -> list[Header]:
    """Headers for the browser."""
    dropped = _HOP_BY_HOP | _named_in_connection(headers) | _HOST_WIDE
    response: list[Header] = []
    for name, value in headers:
        if name in dropped:
            continue
        if name == b"set-cookie":
            response += [(name, cookie) for cookie in _confine_cookie(value, forwarding)]
        elif name in (b"location", b"content-location"):
            response.append((name, _rewrite_location(value, forwarding)))
        else:
            response.append((name, value))
    if not any(name == b"cross-origin-resource-policy" for name, _ in response):
        response.append((b"cross-origin-resource-policy", b"same-origin"))
    return response


def header_values(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def cookie_value(headers: Headers, name: bytes) -> bytes:
    """The first value, which belongs to the longest path. Empty: no such cookie."""
    return next(iter(cookie_values(headers, name)), b"")


def cookie_values(headers: Headers, name: bytes) -> list[bytes]:
    pairs = (pair.partition(b"=") for pair in _pairs(headers))
    return [value.strip().strip(b'"') for key, _, value in pairs if key.strip() == name]


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    words = (word for value in header_values(headers, b"connection") for word in value.split(b","))
    return frozenset(word.strip().lower() for word in words) - _NEVER_HOP_BY_HOP


def _cookies(headers: Headers) -> Iterable[bytes]:
    kept = [pair for pair in _pairs(headers) if not _is_own_cookie(pair.partition(b"=")[0])]
    return [b"; ".join(kept)] if kept else []


def _pairs(headers: Headers) -> list[bytes]:
    pairs = (pair.strip() for value in header_values(headers, b"cookie") for pair in value.split(b";"))
    return [pair for pair in pairs if pair]


def _is_own_cookie(name: bytes) -> bool:
    return name.strip().lower().startswith(_OWN_COOKIE_PREFIXES)


def _confine_cookie(cookie: bytes, forwarding: ForwardingContext) -> list[bytes]:
    """Drops cookies with Heliostat's names, and limits others to this host and the path of the target."""
    pair, *attributes = cookie.split(b";")
    if _is_own_cookie(pair.partition(b"=")[0]) or b"\r" in cookie or b"\n" in cookie:
        return []
    kept, path = [pair], b""
    for attribute in attributes:
        name, _, value = attribute.strip().partition(b"=")
        match name.strip().lower():
            case b"domain":
                continue
            case b"path":
                path = value.strip()
            case _:
                kept.append(b" " + attribute.strip())
    return [b";".join([*kept, b" Path=" + _confine_path(path, forwarding)])]


def _confine_path(path: bytes, forwarding: ForwardingContext) -> bytes:
    if path.startswith(forwarding.prefix) or path == forwarding.prefix.rstrip(b"/"):
        return path
    if forwarding.keeps_prefix or not path.startswith(b"/"):
        return forwarding.prefix
    return forwarding.prefix + path.lstrip(b"/")


def _rewrite_location(location: bytes, forwarding: ForwardingContext) -> bytes:
    """Maps a path of the server in the job to a path of the browser. Other URLs are unchanged."""
    own_origin = forwarding.scheme + b"://" + forwarding.host
    if location.startswith(own_origin + b"/") or location == own_origin:
        location = location[len(own_origin) :] or b"/"
    is_path = location.startswith(b"/") and not location.startswith(b"//")
    if forwarding.keeps_prefix or not is_path or location.startswith(forwarding.prefix):
        return location
    return forwarding.prefix + location[1:]
