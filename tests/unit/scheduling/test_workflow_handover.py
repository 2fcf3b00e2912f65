"""Jobs of workflows and sweeps before an engine that queues by itself."""

from dataclasses import replace
from datetime import UTC, datetime

from heliostat.engines.slurm.arrays import chunks_of
from heliostat.models import Attempt, Dependency, Job, JobSpec, JobState, Resources, Rule
from heliostat.models.workflows import SWEEP, WORKFLOW, Part
from heliostat.scheduling.handover import to_hand_over

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def a_job(number: int, part: Part | None = None, **fields: object) -> Job:
    spec, wanted = JobSpec(("true",)), Resources()
    made = Job(number, "batch", "j", JobState.PENDING, "u", "u", "p", wanted, spec, NOW, part=part)
    return replace(made, **fields)  # type: ignore[arg-type]


def test_who_is_decided_over_waits_here_until_that_has_happened() -> None:
    parent = a_job(1, Part(WORKFLOW, 1, "a"), state=JobState.RUNNING, attempt=1)
    child = a_job(2, Part(WORKFLOW, 1, "b"), after=(Dependency(1, Rule.DECIDED),), parents_left=1)
    assert to_hand_over([parent, child], NOW) == []


def test_of_a_sweep_with_a_limit_no_more_go_than_may_run_at_once() -> None:
    runs = [
        a_job(number, Part(SWEEP, 1, str(number)), array_id=4, array_index=number, array_limit=2)
        for number in range(1, 6)
    ]
    assert [job.id for job in to_hand_over(runs, NOW, whole_arrays=True)] == [1, 2]
    plain = [replace(run, part=None) for run in runs]
    assert len(to_hand_over(plain, NOW, whole_arrays=True)) == 5


def test_each_goes_to_slurm_alone_as_each_runs_something_of_its_own() -> None:
    runs = [a_job(number, Part(SWEEP, 1, str(number)), array_id=4, array_index=number) for number in (1, 2)]
    steps = [a_job(number, Part(WORKFLOW, 1, f"t.{number}")) for number in (3, 4)]
    attempts = [Attempt(f"{job.id}.1", replace(job, attempt=1), "") for job in (*runs, *steps)]
    assert [len(chunk.attempts) for chunk in chunks_of(attempts)] == [1, 1, 1, 1]
