"""Workflows on the server: submit, look, retry, cancel."""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiResource, JsonObjectList, idempotency_header
from heliostat.errors import HeliostatError

TERMINAL_WORKFLOW_STATES = frozenset({"completed", "failed", "cancelled"})
_LONGEST_PAUSE_SECONDS = 5.0


class SupportsDocument(Protocol):
    """A `Workflow`."""

    def document(self) -> dict[str, Any]: ...


class Workflows(ApiResource):
    def submit(
        self,
        workflow: "SupportsDocument | Mapping[str, Any]",
        values: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **params: Any,
    ) -> dict[str, Any]:
        """A `Workflow`, or the contents of a workflow file; parameters by name. All its jobs or none.

        `values` are parameters too, whatever they are called.
        """
        body = {"workflow": self._document(workflow), "params": {**(values or {}), **params}}
        return self._call("POST", "", with_source_code(body, True, None), idempotency_header(idempotency_key))

    def preview(
        self,
        workflow: "SupportsDocument | Mapping[str, Any]",
        values: Mapping[str, Any] | None = None,
        /,
        **params: Any,
    ) -> dict[str, Any]:
        """What it would become: its jobs by key, with values and needs. Nothing is submitted."""
        given = {**(values or {}), **params}
        body = {"workflow": self._document(workflow), "params": given, "dry_run": True}
        return self._call("POST", "", body)

    def list(self, *, all_users: bool = False, limit: int = 50, before: int | None = None) -> JsonObjectList:
        """Yours, newest first; with `all_users`, also those of projects you manage."""
        return self._items("/workflows", [("limit", limit), ("all", all_users or None), ("before", before)])

    def get(self, number: int) -> dict[str, Any]:
        """With its jobs, their states and what they handed on."""
        return self._call("GET", f"/{int(number)}")

    def document(self, number: int) -> dict[str, Any]:
        """The file it was submitted as."""
        return self._call("GET", f"/{int(number)}/document")

    def retry(self, number: int) -> dict[str, Any]:
        """What failed once more, and all that needs it; `job_ids` in the answer are the new jobs."""
        return self._call("POST", f"/{int(number)}/retry", None, idempotency_header())

    def cancel(self, number: int) -> dict[str, Any]:
        return self._call("POST", f"/{int(number)}/cancel")

    def wait(self, number: int, timeout_seconds: float | None = None) -> dict[str, Any]:
        """Until all its jobs are over. Raises HeliostatError when that takes longer."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 0.1
        while (found := self.get(number))["state"] not in TERMINAL_WORKFLOW_STATES:
            if deadline is not None and time.monotonic() > deadline:
                raise HeliostatError(f"Workflow {number} is not over.", "Wait longer.", code="timeout")
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
        return found

    def _document(self, workflow: "SupportsDocument | Mapping[str, Any]") -> dict[str, Any]:
        """Jobs run where they are submitted, unless they say otherwise: as single ones do."""
        document = dict(workflow) if isinstance(workflow, Mapping) else workflow.document()
        jobs, workdir = document.get("jobs"), self._transport.address.default_workdir()
        if isinstance(jobs, Mapping) and workdir is not None:
            document["jobs"] = {name: _placed(job, workdir) for name, job in jobs.items()}
        return document

    def _call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, f"/workflows{path}", body, headers=headers or {})
        return answer


def _placed(job: Any, workdir: str) -> Any:
    if not isinstance(job, Mapping) or "workdir" in job or "upload" in job:
        return job
    return {**job, "workdir": workdir}
