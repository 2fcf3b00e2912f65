"""Workflows written in Python.

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
from heliostat.errors import Invalid

_OWN = ("needs", "needs_each", "matrix", "retries", "retry_wait", "continue_on_failure")


class WorkflowStep:
    """A job of a workflow. `first >> second`: the second needs the first; either may be a list."""

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
        self._needs |= dict.fromkeys(_names(list(earlier)))
        return self

    def output(self, name: str) -> str:
        """What the job hands on under this name, to stand in a word of another's command or in its env."""
        return f"${{{{ jobs.{self.name}.outputs.{name} }}}}"

    def document(self) -> dict[str, Any]:
        return {**self._fields, **({"needs": list(self._needs)} if self._needs else {})}


class WorkflowStepList(list[WorkflowStep]):
    """Several at once: `prep >> [train, check] >> evaluate`."""

    def __rshift__(self, later: "WorkflowStep | Sequence[WorkflowStep]") -> "WorkflowStep | WorkflowStepList":
        for one in [later] if isinstance(later, WorkflowStep) else later:
            one.add_needs(*self)
        return later if isinstance(later, WorkflowStep) else WorkflowStepList(later)


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

    def submit(self, client: Client | None = None, **params: Any) -> dict[str, Any]:
        """To this machine's server, or the client's; parameters by name."""
        return (client or Client()).workflows.submit(self, **params)


def _names(steps: Any) -> list[str]:
    given = [] if steps is None else [steps] if isinstance(steps, str | WorkflowStep) else list(steps)
    return [one.name if isinstance(one, WorkflowStep) else str(one) for one in given]
