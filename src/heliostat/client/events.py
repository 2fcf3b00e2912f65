"""Client API for job events."""

from collections.abc import Iterator
from itertools import islice
from typing import SupportsInt

from heliostat.client.api_types import JobEventData
from heliostat.client.event_stream import stream_with_reconnect
from heliostat.client.transport import ApiResource, Query


class Events(ApiResource):
    """Events of jobs."""

    def list(
        self, job: SupportsInt | None = None, *, after: int | None = None, limit: int | None = None
    ) -> Iterator[JobEventData]:
        """Events of this job or of all jobs, after this event id, oldest first."""
        return islice(self._past(job, after), limit)

    def follow(self, job: SupportsInt | None = None, *, after: int | None = None) -> Iterator[JobEventData]:
        """New events as they happen, without end."""
        last = after

        def query() -> Query:
            return [("after", last), ("job_id", None if job is None else int(job))]

        for event in stream_with_reconnect(self._transport, "/events/stream", query):
            if event.event == "job":
                data: JobEventData = event.json()
                last = data["id"]
                yield data

    def _past(self, job: SupportsInt | None, after: int | None) -> Iterator[JobEventData]:
        cursor: object = after
        while True:
            query = [("after", cursor), ("job_id", None if job is None else int(job)), ("limit", 500)]
            page = self._transport.call("GET", "/events", query=query)
            yield from page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return
