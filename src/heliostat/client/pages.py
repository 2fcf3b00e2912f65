"""Lists that come in pages."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

from heliostat.client.transport import Query, Transport

_PAGE = 200


def pages(transport: Transport, path: str, query: Query = (), limit: int | None = None) -> Iterator[Any]:
    """The items of all pages, asked for as they are needed; at most `limit`."""
    return islice(_all(transport, path, list(query), limit), limit)


def _all(transport: Transport, path: str, query: list[tuple[str, object]], limit: int | None) -> Iterator[Any]:
    cursor: str | None = None
    size = _PAGE if limit is None else max(1, min(_PAGE, limit))
    while True:
        page = transport.call("GET", path, query=[*query, ("limit", size), ("cursor", cursor)])
        yield from page["items"]
        cursor = page.get("next_cursor")
        if cursor is None:
            return
