"""Jobs of workflows and sweeps before an engine that queues by itself."""

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


def test_who_is_decided_over_waits_here_until_that_has_happened() -> None:
    parent = a_job(1, WorkflowMembership(WORKFLOW, 1, "a"), state=JobState.RUNNING, attempt=1)
    child = a_job(
        2,
        WorkflowMembership(WORKFLOW, 1, "b"),
        after=(Dependency(1, DependencyCondition.WORKFLOW_DECIDES),),
        parents_left=1,
    )
    assert select_jobs_to_dispatch([parent, child], NOW) == []


def test_of_a_sweep_with_a_limit_no_more_go_than_may_run_at_once() -> None:
    runs = [
        a_job(number, WorkflowMembership(SWEEP, 1, str(number)), array_id=4, array_index=number, array_limit=2)
        for number in range(1, 6)
    ]
    assert [job.id for job in select_jobs_to_dispatch(runs, NOW, whole_arrays=True)] == [1, 2]
    plain = [replace(run, part=None) for run in runs]
    assert len(select_jobs_to_dispatch(plain, NOW, whole_arrays=True)) == 5


def test_each_goes_to_slurm_alone_as_each_runs_something_of_its_own() -> None:
    runs = [
        a_job(number, WorkflowMembership(SWEEP, 1, str(number)), array_id=4, array_index=number)
        for number in (1, 2)
    ]
    steps = [a_job(number, WorkflowMembership(WORKFLOW, 1, f"t.{number}")) for number in (3, 4)]
    attempts = [Attempt(f"{job.id}.1", replace(job, attempt=1), "") for job in (*runs, *steps)]
    assert [len(chunk.attempts) for chunk in group_into_chunks(attempts)] == [1, 1, 1, 1]
