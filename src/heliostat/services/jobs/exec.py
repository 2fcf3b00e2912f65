"""A command inside a job that runs: for its owner alone."""

from collections.abc import Sequence

from heliostat.engines.exec import ExecCommand
from heliostat.engines.job_folders import AttemptRefused
from heliostat.errors import Conflict, Forbidden, invalid_field
from heliostat.models import Attempt, Caller, Job, JobId, JobState
from heliostat.models.environments import INTERNAL_JOB_KINDS
from heliostat.services.context import Context, require_program_engine
from heliostat.services.permissions import require_inspectable_job

__all__ = ["ExecCommand", "exec_in_job"]

_MOST_BYTES = 128 * 1024


def exec_in_job(
    context: Context, caller: Caller, job_id: JobId, command: Sequence[str], terminal: str = ""
) -> ExecCommand:
    """What to start, on a terminal of that kind if one is named.

    Not for managers and admins: they would act as somebody else.
    """
    job = require_inspectable_job(context, caller, job_id)
    if job.user != caller.user.name:
        raise Forbidden(f"Job {job_id} is {job.user}'s, and a command in it runs as them.", f"Ask {job.user}.")
    if job.kind in INTERNAL_JOB_KINDS:
        raise Forbidden(
            "Its script is not yours, and may work for others too, so nobody may enter it.", "See its log."
        )
    engine = require_program_engine(context)
    if command or not terminal:
        _check(command)
    if job.state is not JobState.RUNNING:
        raise Conflict(
            f"Job {job_id} is {job.state}, so there is nothing to enter.", f"See `helio show {job_id}`."
        )
    try:
        return engine.exec(_attempt(job), command, terminal)
    except AttemptRefused as error:
        raise Conflict(
            f"Job {job_id} cannot be entered: {error}.", f"See `helio show {job_id}`; try again when it runs."
        ) from error


def _attempt(job: Job) -> Attempt:
    """As if it had one task, with all its devices on this node."""
    devices = job.devices or tuple(device for place in job.task_placements for device in place.devices)
    return Attempt(job.attempt_id, job, job.node or "", devices)


def _check(command: Sequence[str]) -> None:
    if not command or not command[0].strip():
        raise invalid_field("command", "say what to run")
    if any("\0" in word for word in command):
        raise invalid_field("command", "a word holds a NUL character")
    try:
        length = sum(len(word.encode("utf-8", "surrogateescape")) + 1 for word in command)
    except UnicodeEncodeError:
        raise invalid_field("command", "a word is not text") from None
    if length > _MOST_BYTES:
        raise invalid_field("command", f"all its words together have more than {_MOST_BYTES} bytes")
