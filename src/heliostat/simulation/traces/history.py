"""Heliostat's own history, as `helio history export` writes it: one JSON object a line."""

import json
from collections.abc import Iterable, Iterator, Mapping

from heliostat.simulation.traces.fields import FIELDS, job_of
from heliostat.simulation.traces.records import BadValue, TraceJob

_ENDING = {"jobs"}


class History:
    """Jobs that never started are left out. The last line says how many there are."""

    def records(self, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
        return ((line_number, line) for line_number, line in enumerate(lines, 1) if line.strip())

    def job(self, line: str) -> TraceJob | str:
        try:
            read = json.loads(line)
        except (ValueError, RecursionError):
            raise BadValue("line", "is not JSON") from None
        if not isinstance(read, Mapping):
            raise BadValue("line", "is not a JSON object")
        if set(read) == _ENDING:
            return ""
        if "started_at" in read and read["started_at"] is None:
            return "never ran"
        found = {name: read[name] for name in FIELDS if name in read}
        return job_of(found | {"limit_seconds": read.get("time_limit_seconds", read.get("limit_seconds"))})
