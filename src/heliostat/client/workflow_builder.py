"""Builds workflows in Python.

with Workflow("train", lr=0.1) as w:
    prep = w.job("prep", ["python", "prep.py"])
    train = w.job("train", ["python", "train.py", "--lr", "${{ matrix.lr }}"], gpus=1, matrix={"lr": [0.1, 0.01]})
    evaluate = w.job("evaluate", ["python", "evaluate.py", "${{ argmax(jobs.train.outputs.acc) }}"])
    prep >> train >> evaluate
w.submit()
"""

from collections.abc import Sequence
from typing import Any

from heliostat.client.client import Client
from heliostat.client.request_bodies import job_body
from heliostat.client.workflows import WorkflowHandle
from heliostat.errors import Invalid

_STEP_FIELDS = ("needs", "needs_each", "matrix", "retries", "retry_wait", "continue_on_failure")


class WorkflowStep:
    """A job of a workflow. `first >> second`: the second depends on the first; either may be a list."""

    def __init__(self, name: str, fields: dict[str, Any]) -> None:
        self.name, self._fields = name, fields
        self._needs: dict[str, None] = dict.fromkeys(_names(fields.pop("needs", None)))

    def __repr__(self) -> str:
        return f"<WorkflowStep {self.name}>"

    def __rshift__(self, later: "WorkflowStep | Sequence[WorkflowStep]") -> "WorkflowStep | WorkflowStepList":
        return WorkflowStepList([self]) >> later

    def __rrshift__(self, earlier: "Sequence[WorkflowStep]") -> "WorkflowStep | WorkflowStepList":
        return WorkflowStepList(earlier) >> self

    def add_needs(self, *earlier: "WorkflowStep | str") -> "WorkflowStep":
        """Starts it after these steps."""
        self._needs |= dict.fromkeys(_names(list(earlier)))
        return self

    def output(self, name: str) -> str:
        """A reference to an output of this job, for the command or env of another job."""
        return f"${{{{ jobs.{self.name}.outputs.{name} }}}}"

    def document(self) -> dict[str, Any]:
        """Its entry in a workflow file."""
        return {**self._fields, **({"needs": list(self._needs)} if self._needs else {})}


class WorkflowStepList(list[WorkflowStep]):
    """Several steps, as in `prep >> [train, check] >> evaluate`."""

    def __rshift__(self, later: "WorkflowStep | Sequence[WorkflowStep]") -> "WorkflowStep | WorkflowStepList":
        for step in [later] if isinstance(later, WorkflowStep) else later:
            step.add_needs(*self)
        return later if isinstance(later, WorkflowStep) else WorkflowStepList(later)


class Workflow:
    """Jobs with dependencies. Keyword arguments are the parameters of the workflow with their defaults."""

    def __init__(self, name: str, *, project: str | None = None, **params: Any) -> None:
        self.name, self._project, self._params = name, project, params
        self._steps: dict[str, WorkflowStep] = {}

    def __enter__(self) -> "Workflow":
        return self

    def __exit__(self, *_: object) -> None:
        """Does not submit: call `submit`."""

    def job(self, name: str, command: str | Sequence[str] | None = None, **fields: Any) -> WorkflowStep:
        """Adds a job. Fields: those of `Client.submit`, and needs, needs_each, condition (`if` in files), matrix,
        retries, retry_wait, continue_on_failure."""
        if name in self._steps:
            message = f"The workflow {self.name} already has a job {name}."
            raise Invalid(message, "Give each job a different name.", fields={f"jobs.{name}": "duplicate name"})
        step_fields = {key: fields.pop(key) for key in _STEP_FIELDS if key in fields}
        if (condition := fields.pop("condition", None)) is not None:
            step_fields["if"] = condition
        if "needs_each" in step_fields:
            step_fields["needs_each"] = _names(step_fields["needs_each"])
        body = job_body(fields if command is None else {"command": command, **fields})
        step = self._steps[name] = WorkflowStep(name, {**body, **step_fields})
        return step

    def document(self) -> dict[str, Any]:
        """The contents of a workflow file."""
        document: dict[str, Any] = {"name": self.name}
        if self._project is not None:
            document["project"] = self._project
        if self._params:
            document["params"] = dict(self._params)
        return {**document, "jobs": {name: step.document() for name, step in self._steps.items()}}

    def submit(self, client: Client | None = None, **params: Any) -> WorkflowHandle:
        """Submits to the server of the client, or to the default server; parameters by name."""
        return (client or Client()).workflows.submit(self, **params)


def _names(steps: Any) -> list[str]:
    listed = [] if steps is None else [steps] if isinstance(steps, str | WorkflowStep) else list(steps)
    return [step.name if isinstance(step, WorkflowStep) else str(step) for step in listed]
