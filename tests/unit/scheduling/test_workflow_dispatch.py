"""Dispatch of workflow and sweep jobs to engines with their own queue."""

from dataclasses import replace
from datetime import UTC, datetime

from heliostat.engines.slurm.arrays import group_into_chunks
from heliostat.models import Attempt, Dependency, DependencyCondition, Job, JobSpec, JobState, Resources
from heliostat.models.workflows import SWEEP, WORKFLOW, WorkflowMembership
from heliostat.scheduling.dispatch import select_jobs_to_dispatch

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def a_job(number: int, part: WorkflowMembership | None = None, **fields: object) -> Job:
    spec, wanted = JobSpec(("true",)), Resources()
    made = Job(number, "batch", "j", JobState.PENDING, "u", "u", "p", wanted, spec, NOW, part=part)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_a_workflow_job_is_not_dispatched_before_its_start_decision() -> None:
    parent = a_job(1, WorkflowMembership(WORKFLOW, 1, "a"), state=JobState.RUNNING, attempt=1)
    child = a_job(
        2,
        WorkflowMembership(WORKFLOW, 1, "b"),
        after=(Dependency(1, DependencyCondition.WORKFLOW_DECIDES),),
        parents_left=1,
    )
    assert select_jobs_to_dispatch([parent, child], NOW) == []


def test_no_more_jobs_of_a_sweep_than_its_limit_are_dispatched() -> None:
    runs = [
        a_job(number, WorkflowMembership(SWEEP, 1, str(number)), array_id=4, array_index=number, array_limit=2)
        for number in range(1, 6)
    ]
    assert [job.id for job in select_jobs_to_dispatch(runs, NOW, whole_arrays=True)] == [1, 2]
    plain = [replace(run, part=None) for run in runs]
    assert len(select_jobs_to_dispatch(plain, NOW, whole_arrays=True)) == 5


def test_each_job_of_a_sweep_is_dispatched_alone() -> None:
    runs = [
        a_job(number, WorkflowMembership(SWEEP, 1, str(number)), array_id=4, array_index=number)
        for number in (1, 2)
    ]
    steps = [a_job(number, WorkflowMembership(WORKFLOW, 1, f"t.{number}")) for number in (3, 4)]
    attempts = [Attempt(f"{job.id}.1", replace(job, attempt=1), "") for job in (*runs, *steps)]
    assert [len(chunk.attempts) for chunk in group_into_chunks(attempts)] == [1, 1, 1, 1]
