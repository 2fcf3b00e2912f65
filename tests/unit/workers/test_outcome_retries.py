"""Jobs of workflows that failed are tried again a while later, as often as they asked for."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.models import Cause, Ended, Job, JobSpec, JobState, Resources
from heliostat.models.workflows import WORKFLOW, Part
from heliostat.workers.outcome import attempt_state_after, move_for_end

NOW = datetime(2026, 3, 1, tzinfo=UTC)
PART = Part(WORKFLOW, 1, "train", retries=2, retry_seconds=30)
JOB = Job(
    7, "batch", "train", JobState.RUNNING, "u", "u", "p", Resources(), JobSpec(("x",)), NOW, attempt=1, part=PART
)


def ended(cause: Cause, code: int | None = None) -> Ended:
    return Ended("7.1", NOW, cause, code)


@pytest.mark.parametrize(
    ("cause", "code"), [(Cause.EXITED, 3), (Cause.TIMED_OUT, None), (Cause.LOST, None), (Cause.OUT_OF_MEMORY, 137)]
)
def test_who_ended_badly_waits_again_twice_as_long_each_time(cause: Cause, code: int | None) -> None:
    first, second, last = (
        move_for_end(replace(JOB, retries=count), ended(cause, code), may_try_again=False) for count in (0, 1, 2)
    )
    assert (first.to, second.to) == (JobState.PENDING, JobState.PENDING)
    assert first.values["begin_at"] == NOW + timedelta(seconds=30)
    assert second.values["begin_at"] == NOW + timedelta(seconds=60)
    assert (first.values["retries"], second.values["retries"]) == (1, 2)
    assert attempt_state_after(first) is JobState.FAILED
    assert last.to in (JobState.FAILED, JobState.TIMED_OUT, JobState.LOST)


@pytest.mark.parametrize("cause", [Cause.REFUSED, Cause.STOPPED])
def test_what_another_try_would_not_change_is_over(cause: Cause) -> None:
    assert move_for_end(JOB, ended(cause), may_try_again=False).to is not JobState.PENDING


def test_who_completed_or_was_cancelled_is_over() -> None:
    assert move_for_end(JOB, ended(Cause.EXITED, 0), may_try_again=False).to is JobState.COMPLETED
    cancelled = replace(JOB, stop_requested="cancel")
    assert move_for_end(cancelled, ended(Cause.EXITED, 1), may_try_again=False).to is JobState.CANCELLED


def test_the_wait_has_an_end_and_other_jobs_are_not_tried_again() -> None:
    assert PART.wait_seconds(50) == 3600
    assert move_for_end(replace(JOB, part=None), ended(Cause.EXITED, 1), may_try_again=False).to is JobState.FAILED
