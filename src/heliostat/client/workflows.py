"""The client's verbs on workflows."""

import time
import uuid
from collections.abc import Mapping
from typing import Any

from heliostat.client.address import Address
from heliostat.client.records import with_record
from heliostat.client.transport import Transport
from heliostat.client.workflow import Workflow
from heliostat.errors import HeliostatError

OVER = frozenset({"completed", "failed", "cancelled"})
_LONGEST_PAUSE_SECONDS = 5.0


class WorkflowVerbs:
    _transport: Transport

    @property
    def address(self) -> Address:
        raise NotImplementedError

    def submit_workflow(
        self,
        workflow: Workflow | Mapping[str, Any],
        values: Mapping[str, Any] | None = None,
        /,
        *,
        idempotency_key: str | None = None,
        **params: Any,
    ) -> dict[str, Any]:
        """A `Workflow`, or the contents of a workflow file; parameters by name. All its jobs or none.

        `values` are parameters too, whatever they are called.
        """
        headers = {"Idempotency-Key": idempotency_key or str(uuid.uuid4())}
        body = {"workflow": self._workflow_document(workflow), "params": {**(values or {}), **params}}
        return self._workflow("POST", "", with_record(body, True, None), headers)

    def check_workflow(
        self, workflow: Workflow | Mapping[str, Any], values: Mapping[str, Any] | None = None, /, **params: Any
    ) -> dict[str, Any]:
        """What it would become: its jobs by key, with values and needs. Nothing is submitted."""
        given = {**(values or {}), **params}
        body = {"workflow": self._workflow_document(workflow), "params": given, "dry_run": True}
        return self._workflow("POST", "", body)

    def workflows(
        self, *, everybodys: bool = False, limit: int = 50, before: int | None = None
    ) -> list[dict[str, Any]]:
        """Yours, newest first; with `everybodys`, also those of projects you manage."""
        query: list[tuple[str, Any]] = [("limit", limit)]
        query += [("all", "true")] if everybodys else []
        query += [("before", before)] if before is not None else []
        found: list[dict[str, Any]] = self._transport.call("GET", "/workflows", query=query)["items"]
        return found

    def workflow(self, number: int) -> dict[str, Any]:
        """With its jobs, their states and what they handed on."""
        return self._workflow("GET", f"/{int(number)}")

    def workflow_document(self, number: int) -> dict[str, Any]:
        """The file it was submitted as."""
        return self._workflow("GET", f"/{int(number)}/document")

    def retry_workflow(self, number: int) -> dict[str, Any]:
        """What failed once more, and all that needs it; `job_ids` in the answer are the new jobs."""
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        return self._workflow("POST", f"/{int(number)}/retry", None, headers)

    def cancel_workflow(self, number: int) -> dict[str, Any]:
        return self._workflow("POST", f"/{int(number)}/cancel")

    def wait_for_workflow(self, number: int, timeout_seconds: float | None = None) -> dict[str, Any]:
        """Until all its jobs are over. Raises HeliostatError when that takes longer."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 0.1
        while (found := self.workflow(number))["state"] not in OVER:
            if deadline is not None and time.monotonic() > deadline:
                raise HeliostatError(f"Workflow {number} is not over.", "Wait longer.", code="timeout")
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
        return found

    def _workflow_document(self, workflow: Workflow | Mapping[str, Any]) -> dict[str, Any]:
        """Jobs run where they are submitted, unless they say otherwise: as single ones do."""
        document = workflow.document() if isinstance(workflow, Workflow) else dict(workflow)
        jobs, workdir = document.get("jobs"), self.address.default_workdir()
        if isinstance(jobs, Mapping) and workdir is not None:
            document["jobs"] = {name: _placed(job, workdir) for name, job in jobs.items()}
        return document

    def _workflow(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, f"/workflows{path}", body, headers=headers or {})
        return answer


def _placed(job: Any, workdir: str) -> Any:
    if not isinstance(job, Mapping) or "workdir" in job or "upload" in job:
        return job
    return {**job, "workdir": workdir}
