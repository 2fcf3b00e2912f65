"""Requests to Prometheus, Alertmanager and Heliostat on this machine."""

import base64
import json
import urllib.error
import urllib.request
from typing import Any

_SECONDS = 5
_MAX_BYTES = 10_000_000


def get_json(url: str, *, password: tuple[str, str] | None = None) -> Any:
    """None: no answer, or no success."""
    headers = {}
    if password is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(":".join(password).encode()).decode()
    body = _ask(urllib.request.Request(url, headers=headers))  # noqa: S310 - an http address
    try:
        return None if body is None else json.loads(body)
    except ValueError:
        return None


def is_successful(url: str, token: str | None = None, body: bytes | None = None) -> bool:
    """Whether a GET, or with a body a POST, succeeds."""
    headers = {"Content-Type": "application/json"} if body is not None else {}
    if token is not None:
        headers["Authorization"] = f"Bearer {token}"
    return _ask(urllib.request.Request(url, data=body, headers=headers)) is not None  # noqa: S310 - an http address


def _ask(request: urllib.request.Request) -> bytes | None:
    """Without the proxies of the environment: all of them are on this machine."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_SECONDS) as response:
            content: bytes = response.read(_MAX_BYTES)
            return content
    except (OSError, ValueError, urllib.error.URLError):
        return None
