"""What the proxy says itself: short, without scripts, and as JSON to programs."""

import json
from html import escape

from heliostat.errors import HeliostatError
from heliostat.proxy.headers import Header, Headers, header_values

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title></head>
<body><main><h1>{title}</h1><p>{hint}</p>{link}</main></body></html>
"""
_SAFE: tuple[Header, ...] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def wants_html(method: str, headers: Headers) -> bool:
    """A person looks at it."""
    return method in ("GET", "HEAD") and any(b"text/html" in value for value in header_values(headers, b"accept"))


def error_response(error: HeliostatError, as_page: bool, link: str = "") -> tuple[list[Header], bytes]:
    if not as_page:
        return [(b"content-type", b"application/json"), *_SAFE], json.dumps(error.as_dict()).encode()
    more = f'<p><a href="{escape(link)}">Look at it in Heliostat</a></p>' if link else ""
    text = _PAGE.format(title=escape(error.message), hint=escape(error.hint or ""), link=more)
    return [(b"content-type", b"text/html; charset=utf-8"), *_SAFE], text.encode()


def redirect_headers(address: str, cookie: str = "") -> list[Header]:
    headers: list[Header] = [(b"location", address.encode("latin-1", "replace")), *_SAFE]
    return [*headers, (b"set-cookie", cookie.encode())] if cookie else headers
