"""The verb on past jobs."""

import json
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any

from heliostat.errors import ServerUnreachable

if TYPE_CHECKING:
    from heliostat.client.transport import Transport


class HistoryVerbs:
    """Needs `_transport`."""

    _transport: "Transport"

    def history(
        self, *, since: datetime | str | None = None, until: datetime | str | None = None, anonymous: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Jobs that are over and were submitted in that time, oldest first, as they come. Admins only."""
        query = [("from", since), ("to", until), ("anonymous", anonymous or None)]
        with self._transport.stream("/history", query) as lines:
            for count, line in enumerate(lines):
                if not line.endswith(b"\n"):
                    break
                said = json.loads(line)
                if said == {"jobs": count}:
                    return
                yield said
        raise ServerUnreachable(
            "The export was cut short.", "Try again; the server's log may say why: server.log."
        )
