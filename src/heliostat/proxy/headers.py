"""What is passed on and what is not: pure rules over lists of (name, value) with names in small letters.

Order and repetition are kept. What belongs to one connection ends here; what is ours is never passed on; and what
a server inside a job says must not reach beyond its own place in the browser.
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
# They say where a message ends, where it goes and what it is: no `Connection` header takes them away.
_NEVER_OF_A_CONNECTION = frozenset(
    {b"content-length", b"content-type", b"content-encoding", b"content-range", b"host", b"origin"}
)
_OURS = frozenset({b"authorization", b"cookie", b"expect", b"forwarded", b"x-real-ip"})
# They act on the whole host: on other sessions, and on the control plane beside them.
_TOO_WIDE = frozenset({b"clear-site-data", b"strict-transport-security", b"alt-svc", b"service-worker-allowed"})
UPGRADE_HEADERS: tuple[Header, ...] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))
_OUR_COOKIES = (b"helio_", b"__host-helio_", b"__secure-helio_")


@dataclass(frozen=True, slots=True)
class ForwardingContext:
    """What the rules need to know of where a request goes."""

    prefix: bytes  # "/s/12/": where the browser sees it
    keeps_prefix: bool  # so does the server inside; else it sees itself at "/"
    scheme: bytes
    host: bytes  # as the browser wrote it
    client: bytes
    authorization: bytes | None = None  # what the server inside wants to see


def filter_request_headers(headers: Headers, passing: ForwardingContext) -> list[Header]:
    """For the server inside. Host and Origin stay as the browser wrote them, so that they agree."""
    dropped = _HOP_BY_HOP | _named_in_connection(headers) | _OURS
    kept = [
        (name, value)
        for name, value in headers
        if name not in dropped and not name.startswith((b"x-forwarded-", b"x-heliostat-"))
    ]
    kept += [(b"cookie", value) for value in _cookies(headers)]
    if passing.authorization is not None:
        kept.append((b"authorization", passing.authorization))
    kept += [
        (b"x-forwarded-for", passing.client),
        (b"x-forwarded-host", passing.host),
        (b"x-forwarded-proto", passing.scheme),
    ]
    if not passing.keeps_prefix:
        kept.append((b"x-forwarded-prefix", passing.prefix.rstrip(b"/")))
    return kept


def filter_response_headers(headers: Headers, passing: ForwardingContext) -> list[Header]:
    """For the browser."""
    dropped = _HOP_BY_HOP | _named_in_connection(headers) | _TOO_WIDE
    answer: list[Header] = []
    for name, value in headers:
        if name in dropped:
            continue
        if name == b"set-cookie":
            answer += [(name, cookie) for cookie in _confined(value, passing)]
        elif name in (b"location", b"content-location"):
            answer.append((name, _moved(value, passing)))
        else:
            answer.append((name, value))
    if not any(name == b"cross-origin-resource-policy" for name, _ in answer):
        answer.append((b"cross-origin-resource-policy", b"same-origin"))
    return answer


def header_values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def cookie_value(headers: Headers, wanted: bytes) -> bytes:
    """Its value; of several the first, which belongs to the longest path. Empty: there is none."""
    return next(iter(cookie_values(headers, wanted)), b"")


def cookie_values(headers: Headers, wanted: bytes) -> list[bytes]:
    pairs = (pair.partition(b"=") for pair in _pairs(headers))
    return [value.strip().strip(b'"') for name, _, value in pairs if name.strip() == wanted]


def _named_in_connection(headers: Headers) -> frozenset[bytes]:
    words = (word for value in header_values(headers, b"connection") for word in value.split(b","))
    return frozenset(word.strip().lower() for word in words) - _NEVER_OF_A_CONNECTION


def _cookies(headers: Headers) -> Iterable[bytes]:
    kept = [pair for pair in _pairs(headers) if not _is_ours(pair.partition(b"=")[0])]
    return [b"; ".join(kept)] if kept else []


def _pairs(headers: Headers) -> list[bytes]:
    found = (pair.strip() for value in header_values(headers, b"cookie") for pair in value.split(b";"))
    return [pair for pair in found if pair]


def _is_ours(name: bytes) -> bool:
    return name.strip().lower().startswith(_OUR_COOKIES)


def _confined(cookie: bytes, passing: ForwardingContext) -> list[bytes]:
    """Never one that is named like ours, for another host, or for more than its own paths."""
    pair, *attributes = cookie.split(b";")
    if _is_ours(pair.partition(b"=")[0]) or b"\r" in cookie or b"\n" in cookie:
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
    return [b";".join([*kept, b" Path=" + _path_inside(path, passing)])]


def _path_inside(path: bytes, passing: ForwardingContext) -> bytes:
    if path.startswith(passing.prefix) or path == passing.prefix.rstrip(b"/"):
        return path
    if passing.keeps_prefix or not path.startswith(b"/"):
        return passing.prefix
    return passing.prefix + path.lstrip(b"/")


def _moved(location: bytes, passing: ForwardingContext) -> bytes:
    """A path as the server inside sees it becomes one as the browser sees it. Other places stay as they are."""
    here = passing.scheme + b"://" + passing.host
    if location.startswith(here + b"/") or location == here:
        location = location[len(here) :] or b"/"
    is_path = location.startswith(b"/") and not location.startswith(b"//")
    if passing.keeps_prefix or not is_path or location.startswith(passing.prefix):
        return location
    return passing.prefix + location[1:]
