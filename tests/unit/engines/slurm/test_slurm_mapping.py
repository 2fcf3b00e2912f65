"""How a Slurm job has ended, and why it waits, in our words."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from heliostat.engines.slurm.client import SlurmRefused
from heliostat.engines.slurm.command_output import SlurmJob
from heliostat.engines.slurm.journal import ALREADY_STARTED_EXIT_CODE, Receipt
from heliostat.engines.slurm.mapping import (
    EndEvidence,
    describe_refusal,
    determine_end,
    is_job_count_limit,
    is_temporary_refusal,
)
from heliostat.models import Attempt, EndCause, Job, JobSpec, JobState, Resources

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
OVER = SlurmJob(7, "COMPLETED", 1001, 0, 0, BEGAN, BEGAN + timedelta(seconds=90), ("n1",), "None")
JOB = Job(
    id=12,
    kind="batch",
    name="train",
    state=JobState.RUNNING,
    user="ann",
    unix_user="ann",
    project="vision",
    resources=Resources(1, 64),
    spec=JobSpec(("true",)),
    submitted_at=BEGAN,
    time_limit_seconds=60,
    attempt=1,
)
ATTEMPT = Attempt("12.1", JOB, "n1")


BEGUN = Receipt(7, "n1")
POLICY = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)"


def refused(last: str, said: str = "") -> SlurmRefused:
    error = SlurmRefused(last)
    error.output = said or last
    return error


@pytest.mark.parametrize(
    ("job", "cause", "exit_code"),
    [
        (OVER, EndCause.EXITED, 0),
        (replace(OVER, state="FAILED", exit_code=3), EndCause.EXITED, 3),
        (replace(OVER, state="OUT_OF_MEMORY", signal=9), EndCause.OUT_OF_MEMORY, 137),
        (replace(OVER, state="OUT_OF_MEMORY", signal=125), EndCause.OUT_OF_MEMORY, 137),  # Slurm's own number
        (replace(OVER, state="TIMEOUT", signal=15), EndCause.TIMED_OUT, 143),
        (
            replace(OVER, state="FAILED", signal=15),
            EndCause.TIMED_OUT,
            143,
        ),  # at its limit, by a server that is gone
        (replace(OVER, state="NODE_FAIL"), EndCause.LOST, None),
        (replace(OVER, state="CANCELLED"), EndCause.STOPPED, 0),
        (replace(OVER, state="CANCELLED", nodes=(), started_at=None), EndCause.STOPPED, None),
        (replace(OVER, state="FAILED", signal=53), EndCause.REFUSED, None),
    ],
)
def test_the_end_of_a_slurm_job_has_a_cause(job: SlurmJob, cause: EndCause, exit_code: int | None) -> None:
    attempt = (
        ATTEMPT if cause is EndCause.TIMED_OUT else replace(ATTEMPT, job=replace(JOB, time_limit_seconds=None))
    )
    ended = determine_end(attempt, job, EndEvidence(receipt=BEGUN))
    assert (ended.cause, ended.exit_code) == (cause, exit_code)
    assert ended.at == OVER.ended_at


@pytest.mark.parametrize(("code", "cause"), [(137, EndCause.OUT_OF_MEMORY), (1, EndCause.EXITED)])
def test_a_container_that_was_killed_when_its_memory_was_full_is_told_as_out_of_memory(
    code: int, cause: EndCause
) -> None:
    job, attempt = (
        replace(OVER, state="FAILED", exit_code=code),
        replace(ATTEMPT, job=replace(JOB, time_limit_seconds=None)),
    )
    noted = replace(BEGUN, exit_code=code, out_of_memory=True)
    ended = determine_end(attempt, job, EndEvidence(receipt=noted))
    assert (ended.cause, ended.exit_code) == (cause, code)


ENDED = replace(BEGUN, exit_code=3)


@pytest.mark.parametrize(
    ("state", "receipt", "controller_restarted", "cause"),
    [
        ("NODE_FAIL", ENDED, False, EndCause.EXITED),  # it had ended before its node was lost
        ("NODE_FAIL", BEGUN, False, EndCause.LOST),
        ("NODE_FAIL", replace(BEGUN, exit_code=143), False, EndCause.LOST),  # Slurm had it killed for that
        ("NODE_FAIL", Receipt(), False, EndCause.NOT_STARTED),
        ("CANCELLED", ENDED, False, EndCause.STOPPED),
        ("CANCELLED", ENDED, True, EndCause.EXITED),  # Slurm kills what it does not remember
        ("CANCELLED", BEGUN, True, EndCause.LOST),
        ("CANCELLED", Receipt(), True, EndCause.NOT_STARTED),
        ("FAILED", ENDED, True, EndCause.EXITED),
        ("CANCELLED", replace(BEGUN, exit_code=143), True, EndCause.LOST),
    ],
)
def test_what_a_job_noted_itself_counts_where_slurm_has_lost_it(
    state: str, receipt: Receipt, controller_restarted: bool, cause: EndCause
) -> None:
    attempt = replace(ATTEMPT, job=replace(JOB, time_limit_seconds=None))
    ended = determine_end(
        attempt, replace(OVER, state=state, exit_code=3), EndEvidence(None, receipt, controller_restarted)
    )
    assert ended.cause is cause
    assert ended.exit_code == (3 if cause is EndCause.EXITED else ended.exit_code)


def test_a_job_that_slurm_ran_twice_ended_as_it_did_the_first_time() -> None:
    attempt = replace(ATTEMPT, job=replace(JOB, time_limit_seconds=None))
    again = replace(OVER, state="FAILED", exit_code=ALREADY_STARTED_EXIT_CODE)
    assert determine_end(attempt, again, EndEvidence(receipt=ENDED)).exit_code == 3
    assert determine_end(attempt, again, EndEvidence(receipt=BEGUN)).cause is EndCause.LOST
    assert (
        determine_end(
            attempt, again, EndEvidence(receipt=replace(ENDED, exit_code=ALREADY_STARTED_EXIT_CODE))
        ).exit_code
        == ALREADY_STARTED_EXIT_CODE
    )


def test_a_script_that_cannot_write_its_receipt_says_why_it_did_not_begin() -> None:
    ended = determine_end(
        ATTEMPT,
        replace(OVER, state="FAILED", exit_code=ALREADY_STARTED_EXIT_CODE),
        EndEvidence(receipt=Receipt(written_at=datetime.now(UTC))),
    )
    assert (ended.cause, "could not write" in str(ended.detail)) == (EndCause.NOT_STARTED, True)


def test_who_was_stopped_has_stopped_whatever_slurm_calls_it() -> None:
    ended = determine_end(ATTEMPT, replace(OVER, state="FAILED", exit_code=7), EndEvidence(EndCause.STOPPED))
    assert (ended.cause, ended.exit_code) == (EndCause.STOPPED, 7)


@pytest.mark.parametrize(
    ("said", "passes"),
    [
        ("Invalid qos specification", False),
        ("Requested node configuration is not available", False),
        ("Access/permission denied", False),
        ("Memory required by task is not available", False),
        ("Invalid account or account/partition combination specified", True),
        (POLICY, True),
        ("Unexpected missing something", True),
        ("sbatch ended with 1", True),
    ],
)
def test_only_what_is_said_of_the_job_is_final(said: str, passes: bool) -> None:
    assert is_temporary_refusal(refused(said)) is passes


@pytest.mark.parametrize(
    ("limit", "passes", "words"),
    [
        ("AssocMaxSubmitJobLimit", True, "has reached the limit of jobs in the queue per user in the account"),
        ("QOSMaxSubmitJobPerUserLimit", True, "has reached the limit of jobs in the queue per user in the QOS"),
        ("AssocGrpSubmitJobsLimit", True, "its account has reached its limit of jobs in the queue"),
        ("QOSMaxWallDurationPerJobLimit", False, "requests more time than its QOS allows per job"),
        ("AssocMaxCpuPerJobLimit", False, "requests more cpus than its account allows per job"),
    ],
)
def test_of_limits_only_that_on_the_number_of_jobs_is_waited_for(limit: str, passes: bool, words: str) -> None:
    error = refused(POLICY, f"sbatch: error: {limit}\nsbatch: error: Batch job submission failed: {POLICY}")
    assert (is_temporary_refusal(error), is_job_count_limit(error)) == (passes, passes)
    assert words in describe_refusal(error)
    assert limit in describe_refusal(error)


def test_a_refusal_names_the_next_step_where_we_know_it() -> None:
    of_account = refused("Invalid account or account/partition combination specified")
    assert "helio slurm apply" in describe_refusal(of_account)
    assert describe_refusal(refused("Something else")) == "Slurm refused the job: Something else"
