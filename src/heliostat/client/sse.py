"""Server-Sent Events, as the HTML standard reads them."""

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple


class ServerEvent(NamedTuple):
    event: str
    data: str
    id: str | None = None

    def json(self) -> Any:
        return json.loads(self.data)


def read_events(lines: Iterable[bytes]) -> Iterator[ServerEvent]:
    """Whole events only: one cut off by a broken connection is left out."""
    event, data, last_id = "message", list[str](), None
    for raw in lines:
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield ServerEvent(event, "\n".join(data), last_id)
            event, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            event = value
        elif name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
