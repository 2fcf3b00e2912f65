"""Exec: a command inside a running job, for its owner only."""

from collections.abc import Sequence

from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_folders import AttemptRefused
from heliostat.errors import Conflict, Forbidden, invalid_field
from heliostat.models import Attempt, Caller, Job, JobId, JobState
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.services.context import Context, require_program_engine
from heliostat.services.permissions import require_inspectable_job

__all__ = ["ExecCommand", "exec_in_job"]

_MAX_COMMAND_BYTES = 128 * 1024


def exec_in_job(
    context: Context, caller: Caller, job_id: JobId, command: Sequence[str], terminal: str = ""
) -> ExecCommand:
    """The command to start; `terminal` is the terminal type, empty for none.

    Not for managers and admins: the command runs as the job's owner.
    """
    job = require_inspectable_job(context, caller, job_id)
    if job.user != caller.user.name:
        raise Forbidden(
            f"Job {job_id} belongs to {job.user}; only {job.user} can run a command in it.", f"Ask {job.user}."
        )
    if job.kind in INTERNAL_JOB_KINDS:
        raise Forbidden(
            "The script of this job is part of Heliostat, so other commands in it are not allowed.",
            f"See its log: helio logs {job_id}.",
        )
    engine = require_program_engine(context)
    if command or not terminal:
        _check(command)
    if job.state is not JobState.RUNNING:
        raise Conflict(
            f"Job {job_id} is {job.state}; commands run only in a running job.", f"See `helio show {job_id}`."
        )
    try:
        return engine.exec(_attempt(job), command, terminal)
    except AttemptRefused as error:
        raise Conflict(
            f"No command can run in job {job_id}: {error}.",
            f"See `helio show {job_id}`; try again when the job runs.",
        ) from error


def _attempt(job: Job) -> Attempt:
    """One task with all devices of the job."""
    devices = job.devices or tuple(device for place in job.task_placements for device in place.devices)
    return Attempt(job.attempt_id, job, job.node or "", devices)


def _check(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise invalid_field("command", "must not be empty")
    if any("\0" in argument for argument in command):
        raise invalid_field("command", "an argument contains a NUL character")
    try:
        length = sum(len(argument.encode("utf-8", "surrogateescape")) + 1 for argument in command)
    except UnicodeEncodeError:
        raise invalid_field("command", "an argument is not valid text") from None
    if length > _MAX_COMMAND_BYTES:
        raise invalid_field("command", f"must have at most {_MAX_COMMAND_BYTES} bytes")
