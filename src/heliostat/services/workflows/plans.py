"""Workflow plans: a workflow file expanded to the requests of its jobs."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from heliostat.errors import ErrorCollector
from heliostat.models import DependencyCondition, JobRequest, ParentReference
from heliostat.models.retries import RETRY_CAUSES, RetryPolicy
from heliostat.models.workflows import WORKFLOW, WorkflowJob, WorkflowMembership
from heliostat.workflows.expansion import ExpandedJob, ExpandedWorkflow, expand_workflow
from heliostat.workflows.validation_errors import invalid_field
from heliostat.workflows.workflow_file import parse_workflow

ParseJobRequest = Callable[[Mapping[str, object]], JobRequest]
"""Checks the fields of a job as the API does."""


@dataclass(frozen=True, slots=True)
class WorkflowPlan:
    """What submitting or retrying a workflow needs."""

    expanded: ExpandedWorkflow
    requests: tuple[JobRequest, ...]  # one per job
    document: str  # as submitted

    @property
    def idempotency_content(self) -> str:
        """Identifies a repeated request."""
        return f"workflow {self.document} {json.dumps(dict(self.expanded.params), sort_keys=True)}"


def plan_workflow(document: object, params: Mapping[str, object], read_job: ParseJobRequest) -> WorkflowPlan:
    """Raises Invalid, with the field, or TooLarge."""
    try:
        text = json.dumps(document, sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        raise invalid_field("workflow", "is nested too deeply, or contains values that are not JSON") from None
    expanded = expand_workflow(parse_workflow(document), params)
    requests: list[JobRequest] = []
    errors = ErrorCollector()
    for node in expanded.jobs:
        with errors.part(f"job {node.step.name}: ", f"jobs.{node.step.name}."):
            requests.append(_request(node, read_job))
    errors.raise_errors()
    return WorkflowPlan(expanded, tuple(requests), text)


def workflow_membership(node: ExpandedJob, number: int) -> WorkflowMembership:
    return WorkflowMembership(WORKFLOW, number, node.key)


def make_workflow_job(node: ExpandedJob, number: int, job_id: int, position: int) -> WorkflowJob:
    return WorkflowJob(
        workflow_id=number,
        key=node.key,
        job_id=job_id,
        step=node.step.name,
        position=position,
        values={name: value for name, value in node.values.items() if isinstance(value, str | int | float)},
        needs=node.step.parents,
        condition=node.step.condition,
        continue_on_failure=node.step.continue_on_failure,
        has_deferred_values=node.is_late,
    )


def _request(node: ExpandedJob, read_job: ParseJobRequest) -> JobRequest:
    named = replace(
        read_job(node.job_fields),
        name=node.key,
        after=tuple(ParentReference(key, DependencyCondition.WORKFLOW_DECIDES) for key in node.needs),
    )
    return with_retries(named, node.step.retries, node.step.retry_seconds)


def with_retries(request: JobRequest, count: int, wait_seconds: int) -> JobRequest:
    """With retries of a workflow or sweep, which apply to every cause of failure; 0: unchanged."""
    return replace(request, max_retries=count, retry=RetryPolicy(RETRY_CAUSES, wait_seconds)) if count else request
