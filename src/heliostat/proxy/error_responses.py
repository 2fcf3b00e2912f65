"""Error responses and redirects of the proxy: HTML without scripts for browsers, JSON for programs."""

import json
from html import escape

from heliostat.errors import HeliostatError
from heliostat.proxy.headers import Header, Headers, header_values

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark"><title>{title}</title></head>
<body><main><h1>{title}</h1><p>{hint}</p>{link}</main></body></html>
"""
_SECURITY_HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


def wants_html(method: str, headers: Headers) -> bool:
    """Whether the client is a browser that shows a page."""
    return method in ("GET", "HEAD") and any(b"text/html" in value for value in header_values(headers, b"accept"))


def error_response(error: HeliostatError, as_page: bool, link: str = "") -> tuple[list[Header], bytes]:
    if not as_page:
        return [(b"content-type", b"application/json"), *_SECURITY_HEADERS], json.dumps(error.as_dict()).encode()
    link_html = f'<p><a href="{escape(link)}">Open in Heliostat</a></p>' if link else ""
    text = _PAGE.format(title=escape(error.message), hint=escape(error.hint or ""), link=link_html)
    return [(b"content-type", b"text/html; charset=utf-8"), *_SECURITY_HEADERS], text.encode()


def redirect_headers(url: str, cookie: str = "") -> list[Header]:
    headers: list[Header] = [(b"location", url.encode("latin-1", "replace")), *_SECURITY_HEADERS]
    return [*headers, (b"set-cookie", cookie.encode())] if cookie else headers
