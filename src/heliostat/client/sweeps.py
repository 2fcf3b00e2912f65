"""Client API for parameter sweeps."""

from collections.abc import Mapping
from typing import Any

from heliostat.client.request_bodies import job_body
from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiRequest, ApiResource, JsonObjectList, idempotency_header


class Sweeps(ApiResource):
    def submit(
        self, job: Mapping[str, Any], *, idempotency_key: str | None = None, record: bool = True, **sweep: Any
    ) -> dict[str, Any]:
        """`submit({"command": ["python", "t.py", "{lr}"]}, name="lr", grid={"lr": [0.1, 0.01]})`.

        Instead of `grid`: `list`, or `random={"count": 20, "seed": 7, "values": {…}}`. Also: at_once, retries,
        retry_wait.
        """
        workdir = job.get("workdir") or (None if job.get("upload") else self._transport.address.default_workdir())
        body = {**job_body(job), **({} if workdir is None else {"workdir": str(workdir)})}
        return self.submit_document(
            {**sweep, "job": body},
            idempotency_key=idempotency_key,
            record=record,
            folder=job.get("upload") or workdir,
        )

    def submit_document(
        self,
        document: Mapping[str, Any],
        *,
        idempotency_key: str | None = None,
        record: bool = True,
        folder: str | None = None,
    ) -> dict[str, Any]:
        """Submits the contents of a sweep file; `folder` is the one whose git state is recorded."""
        response: dict[str, Any] = self._transport.call(
            "POST",
            "/sweeps",
            with_source_code({"sweep": dict(document)}, record, folder),
            headers=idempotency_header(idempotency_key),
        )
        return response

    def list(self, *, all_users: bool = False, limit: int = 50, before: int | None = None) -> JsonObjectList:
        """The caller's sweeps, newest first; with `all_users`, also those of projects the caller manages."""
        return self._items("/sweeps", [("limit", limit), ("all", all_users or None), ("before", before)])

    def get(self, number: int, sort: str | None = None) -> dict[str, Any]:
        """A sweep with the parameters and metrics of its runs; `sort="-acc"`: by this metric, descending."""
        query = [("sort", sort)] if sort else []
        response: dict[str, Any] = self._transport.call("GET", f"/sweeps/{int(number)}", query=query)
        return response

    def csv(self, number: int, sort: str | None = None) -> str:
        query = [("format", "csv"), *([("sort", sort)] if sort else [])]
        return self._transport.send(ApiRequest("GET", f"/sweeps/{int(number)}", query=query)).body.decode("utf-8")
