"""Client API for workflows: submit, list, retry, cancel, wait."""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiResource, JsonObjectList, idempotency_header
from heliostat.errors import WaitTimedOut

TERMINAL_WORKFLOW_STATES = frozenset({"completed", "failed", "cancelled"})
_MAX_POLL_SECONDS = 5.0


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
        """Submits a `Workflow`, or the contents of a workflow file: all jobs, or none if one is invalid.

        Parameters are keyword arguments, or items of `values` if their names are not Python identifiers.
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
        """The jobs of the workflow by key, with values and dependencies. Submits nothing."""
        all_params = {**(values or {}), **params}
        body = {"workflow": self._document(workflow), "params": all_params, "dry_run": True}
        return self._call("POST", "", body)

    def list(self, *, all_users: bool = False, limit: int = 50, before: int | None = None) -> JsonObjectList:
        """The caller's workflows, newest first; with `all_users`, also those of projects the caller manages."""
        return self._items("/workflows", [("limit", limit), ("all", all_users or None), ("before", before)])

    def get(self, number: int) -> dict[str, Any]:
        """A workflow with its jobs, their states and outputs."""
        return self._call("GET", f"/{int(number)}")

    def document(self, number: int) -> dict[str, Any]:
        """The workflow file that it was submitted from."""
        return self._call("GET", f"/{int(number)}/document")

    def retry(self, number: int) -> dict[str, Any]:
        """Runs failed jobs and their dependents again; `job_ids` in the response are the new jobs."""
        return self._call("POST", f"/{int(number)}/retry", None, idempotency_header())

    def cancel(self, number: int) -> dict[str, Any]:
        return self._call("POST", f"/{int(number)}/cancel")

    def wait(self, number: int, timeout_seconds: float | None = None) -> dict[str, Any]:
        """Waits until all its jobs have ended. Raises WaitTimedOut after the timeout."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 0.1
        while (workflow_data := self.get(number))["state"] not in TERMINAL_WORKFLOW_STATES:
            if deadline is not None and time.monotonic() > deadline:
                raise WaitTimedOut(
                    f"Workflow {number} has not ended after {timeout_seconds:g} s.",
                    f"It continues; helio workflow show {number} lists its jobs.",
                )
            time.sleep(pause)
            pause = min(_MAX_POLL_SECONDS, pause * 1.5)
        return workflow_data

    def _document(self, workflow: "SupportsDocument | Mapping[str, Any]") -> dict[str, Any]:
        """Sets the default working directory of jobs, as `submit` does for single jobs."""
        document = dict(workflow) if isinstance(workflow, Mapping) else workflow.document()
        jobs, workdir = document.get("jobs"), self._transport.address.default_workdir()
        if isinstance(jobs, Mapping) and workdir is not None:
            document["jobs"] = {name: _with_workdir(job, workdir) for name, job in jobs.items()}
        return document

    def _call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        data: dict[str, Any] = self._transport.call(method, f"/workflows{path}", body, headers=headers or {})
        return data


def _with_workdir(job: Any, workdir: str) -> Any:
    if not isinstance(job, Mapping) or "workdir" in job or "upload" in job:
        return job
    return {**job, "workdir": workdir}
