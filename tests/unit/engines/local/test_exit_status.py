"""When an attempt has ended, as far as anybody knows."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from heliostat.engines.local.claim_files import WrapperClaim, WrapperExit
from heliostat.engines.local.exit_status import RunningAttempt, make_attempt_ended
from heliostat.models import Attempt, Job, JobSpec, JobState, Resources

STARTED = datetime(2026, 3, 1, 12, tzinfo=UTC)
NO_GROUP: Any = None


def end_of(one_that_ended_at: datetime) -> datetime:
    job = Job(1, "batch", "job", JobState.RUNNING, "ann", "ann", "vision", Resources(), JobSpec(), STARTED)
    attempt = Attempt("1.1", replace(job, attempt=1, started_at=STARTED), "here")
    running = RunningAttempt(attempt, WrapperClaim(1), NO_GROUP)
    return make_attempt_ended(running, WrapperExit(0, timed_out=False, written_at=one_that_ended_at)).at


@pytest.mark.parametrize("behind_ms", [1, 6])
def test_the_coarse_clock_of_a_file_lets_nothing_end_before_it_began(behind_ms: int) -> None:
    assert end_of(STARTED - timedelta(milliseconds=behind_ms)) == STARTED


def test_an_end_is_when_its_trace_was_written() -> None:
    assert end_of(STARTED + timedelta(seconds=30)) == STARTED + timedelta(seconds=30)


def test_a_clock_that_was_set_back_is_told_as_it_was() -> None:
    assert end_of(STARTED - timedelta(hours=1)) == STARTED - timedelta(hours=1)
