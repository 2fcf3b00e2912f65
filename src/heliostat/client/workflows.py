"""The client's verbs on workflows, and workflows written in Python.

with Workflow("train", lr=0.1) as w:
    prep = w.job("prep", ["python", "prep.py"])
    train = w.job("train", ["python", "train.py", "--lr", "${{ matrix.lr }}"], gpus=1, matrix={"lr": [0.1, 0.01]})
    evaluate = w.job("evaluate", ["python", "evaluate.py", "${{ argmax(jobs.train.outputs.acc) }}"])
    prep >> train >> evaluate
w.submit()
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from heliostat.client.address import find_address
from heliostat.client.bodies import job_body
from heliostat.client.git import with_record
from heliostat.client.transport import Records, Resource, Transport, once
from heliostat.errors import HeliostatError, Invalid

OVER = frozenset({"completed", "failed", "cancelled"})
_LONGEST_PAUSE_SECONDS = 5.0
_OWN = ("needs", "needs_each", "matrix", "retries", "retry_wait", "continue_on_failure")


class Workflows(Resource):
    def submit(
        self,
        workflow: "Workflow | Mapping[str, Any]",
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
        return self._call("POST", "", with_record(body, True, None), once(idempotency_key))

    def check(
        self, workflow: "Workflow | Mapping[str, Any]", values: Mapping[str, Any] | None = None, /, **params: Any
    ) -> dict[str, Any]:
        """What it would become: its jobs by key, with values and needs. Nothing is submitted."""
        given = {**(values or {}), **params}
        body = {"workflow": self._document(workflow), "params": given, "dry_run": True}
        return self._call("POST", "", body)

    def list(self, *, everybodys: bool = False, limit: int = 50, before: int | None = None) -> Records:
        """Yours, newest first; with `everybodys`, also those of projects you manage."""
        return self._items("/workflows", [("limit", limit), ("all", everybodys or None), ("before", before)])

    def get(self, number: int) -> dict[str, Any]:
        """With its jobs, their states and what they handed on."""
        return self._call("GET", f"/{int(number)}")

    def document(self, number: int) -> dict[str, Any]:
        """The file it was submitted as."""
        return self._call("GET", f"/{int(number)}/document")

    def retry(self, number: int) -> dict[str, Any]:
        """What failed once more, and all that needs it; `job_ids` in the answer are the new jobs."""
        return self._call("POST", f"/{int(number)}/retry", None, once())

    def cancel(self, number: int) -> dict[str, Any]:
        return self._call("POST", f"/{int(number)}/cancel")

    def wait(self, number: int, timeout_seconds: float | None = None) -> dict[str, Any]:
        """Until all its jobs are over. Raises HeliostatError when that takes longer."""
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        pause = 0.1
        while (found := self.get(number))["state"] not in OVER:
            if deadline is not None and time.monotonic() > deadline:
                raise HeliostatError(f"Workflow {number} is not over.", "Wait longer.", code="timeout")
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE_SECONDS, pause * 1.5)
        return found

    def _document(self, workflow: "Workflow | Mapping[str, Any]") -> dict[str, Any]:
        """Jobs run where they are submitted, unless they say otherwise: as single ones do."""
        document = workflow.document() if isinstance(workflow, Workflow) else dict(workflow)
        jobs, workdir = document.get("jobs"), self._transport.address.default_workdir()
        if isinstance(jobs, Mapping) and workdir is not None:
            document["jobs"] = {name: _placed(job, workdir) for name, job in jobs.items()}
        return document

    def _call(
        self, method: str, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._transport.call(method, f"/workflows{path}", body, headers=headers or {})
        return answer


class WorkflowStep:
    """A job of a workflow. `first >> second`: the second needs the first; either may be a list."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name, self._fields = name, fields
        self._needs: dict[str, None] = dict.fromkeys(_names(fields.pop("needs", None)))

    def __repr__(self) -> str:
        return f"<WorkflowStep {self.name}>"

    def __rshift__(self, later: "WorkflowStep | Sequence[WorkflowStep]") -> "WorkflowStep | Steps":
        return Steps([self]) >> later

    def __rrshift__(self, earlier: "Sequence[WorkflowStep]") -> "WorkflowStep | Steps":
        return Steps(earlier) >> self

    def need(self, *earlier: "WorkflowStep | str") -> "WorkflowStep":
        self._needs |= dict.fromkeys(_names(list(earlier)))
        return self

    def output(self, name: str) -> str:
        """What the job hands on under this name, to stand in a word of another's command or in its env."""
        return f"${{{{ jobs.{self.name}.outputs.{name} }}}}"

    def document(self) -> dict[str, Any]:
        return {**self._fields, **({"needs": list(self._needs)} if self._needs else {})}


class Steps(list[WorkflowStep]):
    """Several at once: `prep >> [train, check] >> evaluate`."""

    def __rshift__(self, later: "WorkflowStep | Sequence[WorkflowStep]") -> "WorkflowStep | Steps":
        for one in [later] if isinstance(later, WorkflowStep) else later:
            one.need(*self)
        return later if isinstance(later, WorkflowStep) else Steps(later)


class HasWorkflows(Protocol):
    """A client."""

    workflows: Workflows


class Workflow:
    """Jobs that need one another. Keyword arguments are its parameters, with their defaults."""

    def __init__(self, name: str, *, project: str | None = None, **params: Any) -> None:
        self.name, self._project, self._params = name, project, params
        self._steps: dict[str, WorkflowStep] = {}

    def __enter__(self) -> "Workflow":
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing happens by itself: `submit` submits."""

    def job(self, name: str, command: str | Sequence[str] | None = None, **fields: Any) -> WorkflowStep:
        """Fields as of `Client.submit`, and: needs, needs_each, condition (`if` in files), matrix, retries,
        retry_wait, continue_on_failure."""
        if name in self._steps:
            message = f"The workflow {self.name} has a job {name} already."
            raise Invalid(message, "Give each a name of its own.", fields={f"jobs.{name}": "is there twice"})
        own = {key: fields.pop(key) for key in _OWN if key in fields}
        if (condition := fields.pop("condition", None)) is not None:
            own["if"] = condition
        if "needs_each" in own:
            own["needs_each"] = _names(own["needs_each"])
        body = job_body(fields if command is None else {"command": command, **fields})
        made = self._steps[name] = WorkflowStep(name, {**body, **own})
        return made

    def document(self) -> dict[str, Any]:
        """As a workflow file has it."""
        document: dict[str, Any] = {"name": self.name}
        if self._project is not None:
            document["project"] = self._project
        if self._params:
            document["params"] = dict(self._params)
        return {**document, "jobs": {name: step.document() for name, step in self._steps.items()}}

    def submit(self, client: HasWorkflows | None = None, **params: Any) -> dict[str, Any]:
        """To this machine's server, or the client's; parameters by name."""
        workflows = Workflows(Transport(find_address())) if client is None else client.workflows
        return workflows.submit(self, **params)


def _placed(job: Any, workdir: str) -> Any:
    if not isinstance(job, Mapping) or "workdir" in job or "upload" in job:
        return job
    return {**job, "workdir": workdir}


def _names(steps: Any) -> list[str]:
    given = [] if steps is None else [steps] if isinstance(steps, str | WorkflowStep) else list(steps)
    return [one.name if isinstance(one, WorkflowStep) else str(one) for one in given]
