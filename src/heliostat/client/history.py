"""The verb on past jobs."""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

from heliostat.errors import ServerUnreachable

if TYPE_CHECKING:
    from heliostat.client.transport import Transport


class ImportedHistory(TypedDict):
    jobs: int  # new
    known: int  # brought in earlier
    left_out: dict[str, int]
    accounts: list[str]  # that were made, for names that had none


class HistoryVerbs:
    """Needs `_transport`."""

    _transport: "Transport"

    def import_slurm(
        self,
        text: str,
        *,
        projects: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        delimiter: str = "|",
    ) -> ImportedHistory:
        """Bring in past jobs of a Slurm cluster, as `sacct --parsable2` printed them with its header.

        `projects` says what Slurm's accounts are called here, `users` the same of people. Done again it changes
        nothing. Admins only.
        """
        body = {"text": text, "delimiter": delimiter, "projects": projects or {}, "users": users or {}}
        done: ImportedHistory = self._transport.call("POST", "/history/slurm", body, may_repeat=True)
        return done

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
