"""Client API for workflows: submit, list, retry, cancel, wait."""

import time
from collections.abc import Mapping
from typing import Any, Protocol, Self, SupportsInt

from heliostat.client.handle import Handle
from heliostat.client.jobs import JobHandle
from heliostat.client.notebook_html import html_table
from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiResource, Deadline, idempotency_header
from heliostat.errors import JobFailed, WaitTimedOut

TERMINAL_WORKFLOW_STATES = frozenset({"completed", "failed", "cancelled"})
_MAX_POLL_SECONDS = 5.0


class SupportsDocument(Protocol):
    """A `Workflow`."""

    def document(self) -> dict[str, Any]:
        """The contents of a workflow file."""


class WorkflowHandle(Handle[dict[str, Any]]):
    """A submitted workflow. Its properties are those of the last response; `refresh()` updates them."""

    __slots__ = ()
    _title = "Workflow"

    @property
    def name(self) -> str:
        """Its name in the file."""
        return str(self.data["name"])

    @property
    def state(self) -> str:
        """running, completed, failed or cancelled."""
        return str(self.data["state"])

    @property
    def is_terminal(self) -> bool:
        """Whether all its jobs have ended."""
        return self.state in TERMINAL_WORKFLOW_STATES

    @property
    def ok(self) -> bool:
        """Whether it has completed."""
        return self.state == "completed"

    @property
    def jobs(self) -> dict[str, JobHandle]:
        """Its jobs by key: train, or train.3 of a matrix."""
        return {row["key"]: JobHandle(self._transport, row["job_id"]) for row in self._rows()}

    @property
    def outputs(self) -> dict[str, dict[str, str]]:
        """The outputs of its jobs by key."""
        return {row["key"]: row["outputs"] for row in self._rows()}

    def refresh(self) -> Self:
        """Loads the current data from the server."""
        self._data = self._all.get(self.id).data
        return self

    def wait(self, timeout: float | None = None, *, check: bool = False) -> Self:
        """Waits until all its jobs have ended. Raises WaitTimedOut after `timeout` seconds.

        With `check`, raises JobFailed if it has not completed.
        """
        self._data = self._all.wait(self.id, timeout).data
        if check and not self.ok:
            raise JobFailed(
                f"Workflow {self.id} {self.state}.", f"Its jobs: helio workflow show {self.id} --failed."
            )
        return self

    def retry(self) -> Self:
        """Runs failed jobs and their dependents again."""
        self._data = self._all.retry(self.id).data
        return self

    def cancel(self) -> Self:
        """Cancels all its jobs that have not ended."""
        self._all.cancel(self.id)
        return self.refresh()

    @property
    def _all(self) -> "Workflows":
        return Workflows(self._transport)

    def _rows(self) -> list[dict[str, Any]]:
        """Lists of workflows do not contain their jobs."""
        rows: list[dict[str, Any]] = (self if "jobs" in self.data else self.refresh()).data["jobs"]
        return rows

    def _summary(self) -> str:
        return self.state

    def _repr_html_(self) -> str:
        rows = ([row["job_id"], row["key"], row["state"], row["reason"]] for row in self._rows())
        return html_table(f"Workflow {self.id} {self.name}: {self.state}", ("job", "key", "state", "reason"), rows)


WorkflowList = list[WorkflowHandle]


class Workflows(ApiResource):
    def submit(
        self,
        workflow: "SupportsDocument | Mapping[str, Any]",
        values: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **params: Any,
    ) -> WorkflowHandle:
        """Submits a `Workflow`, or the contents of a workflow file: all jobs, or none if one is invalid.

        Parameters are keyword arguments, or items of `values` if their names are not Python identifiers.
        """
        body = {"workflow": self._document(workflow), "params": {**(values or {}), **params}}
        request = with_source_code(body, True, None)
        return self._handle(self._call("POST", "", request, idempotency_header(idempotency_key)))

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

    def list(self, *, all_users: bool = False, limit: int = 50, before: int | None = None) -> WorkflowList:
        """The caller's workflows, newest first; with `all_users`, also those of projects the caller manages."""
        query = [("limit", limit), ("all", all_users or None), ("before", before)]
        return [self._handle(data) for data in self._items("/workflows", query)]

    def get(self, number: SupportsInt) -> WorkflowHandle:
        """A workflow with its jobs, their states and outputs."""
        return self._handle(self._call("GET", f"/{int(number)}"))

    def document(self, number: SupportsInt) -> dict[str, Any]:
        """The workflow file that it was submitted from."""
        return self._call("GET", f"/{int(number)}/document")

    def retry(self, number: SupportsInt) -> WorkflowHandle:
        """Runs failed jobs and their dependents again; `data["job_ids"]` are the new jobs."""
        return self._handle(self._call("POST", f"/{int(number)}/retry", None, idempotency_header()))

    def cancel(self, number: SupportsInt) -> WorkflowHandle:
        """Cancels all its jobs that have not ended; `data["job_ids"]` are these jobs."""
        return self._handle(self._call("POST", f"/{int(number)}/cancel"))

    def wait(self, number: SupportsInt, timeout_seconds: float | None = None) -> WorkflowHandle:
        """Waits until all its jobs have ended. Raises WaitTimedOut after the timeout."""
        deadline = Deadline(timeout_seconds)
        pause = 0.1
        while not (workflow := self.get(number)).is_terminal:
            if deadline.is_expired:
                raise WaitTimedOut(
                    f"Workflow {workflow.id} has not ended after {timeout_seconds:g} s.",
                    f"It continues; helio workflow show {workflow.id} lists its jobs.",
                )
            time.sleep(deadline.remaining_seconds(pause))
            pause = min(_MAX_POLL_SECONDS, pause * 1.5)
        return workflow

    def _handle(self, data: dict[str, Any]) -> WorkflowHandle:
        return WorkflowHandle(self._transport, data["id"], data)

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
