"""From a workflow file to the requests for its jobs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from heliostat.errors import HeliostatError, Invalid
from heliostat.models import JobRequest, Parent, Rule
from heliostat.models.retries import ANY_FAILURE, Retry
from heliostat.models.workflows import WORKFLOW, Part, WorkflowJob
from heliostat.workflows.documents import read_document
from heliostat.workflows.expansion import Expanded, Node, expand
from heliostat.workflows.refusing import wrong

ReadJob = Callable[[Mapping[str, object]], JobRequest]
"""Checks the fields of a job as the API does."""


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """All that is needed to make a workflow, or parts of it once more."""

    expanded: Expanded
    requests: tuple[JobRequest, ...]  # one for each node
    document: str  # as it was given

    @property
    def about(self) -> str:
        """What makes two the same request."""
        return f"workflow {self.document} {json.dumps(dict(self.expanded.params), sort_keys=True)}"


def plan_workflow(document: object, params: Mapping[str, object], read_job: ReadJob) -> WorkflowPlan:
    """Raises Invalid, with the field, or TooLarge."""
    try:
        text = json.dumps(document, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise wrong("workflow", "is nested too deeply, or holds what is not JSON") from None
    expanded = expand(read_document(document), params)
    requests = tuple(_request(node, read_job) for node in expanded.nodes)
    return WorkflowPlan(expanded, requests, text)


def part_of(node: Node, number: int) -> Part:
    return Part(WORKFLOW, number, node.key)


def workflow_job(node: Node, number: int, job_id: int, place: int) -> WorkflowJob:
    return WorkflowJob(
        workflow_id=number,
        key=node.key,
        job_id=job_id,
        step=node.step.name,
        place=place,
        values={name: value for name, value in node.values.items() if isinstance(value, str | int | float)},
        needs=node.step.parents,
        condition=node.step.condition,
        goes_on=node.step.continue_on_failure,
        is_late=node.is_late,
    )


def _request(node: Node, read_job: ReadJob) -> JobRequest:
    try:
        request = read_job(node.body)
    except Invalid as error:
        raise _told_of(node, error) from None
    named = replace(request, name=node.key, after=tuple(Parent(key, Rule.DECIDED) for key in node.needs))
    return with_retries(named, node.step.retries, node.step.retry_seconds)


def with_retries(request: JobRequest, count: int, wait_seconds: int) -> JobRequest:
    """As a workflow or a sweep says it: whatever went wrong. Without a count, as the job itself says."""
    return replace(request, max_retries=count, retry=Retry(ANY_FAILURE, wait_seconds)) if count else request


def _told_of(node: Node, error: HeliostatError) -> Invalid:
    """The same words, at the field of the file."""
    at = f"jobs.{node.step.name}"
    fields = {f"{at}.{name}": why for name, why in error.fields.items()}
    return Invalid(f"{at}: {error.message}", error.hint, code=error.code, fields=fields)
