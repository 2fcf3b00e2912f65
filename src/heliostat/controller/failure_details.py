"""Reads failure reasons from the folder of a job: of images, of notebooks, and of commands that are not found.

The folder belongs to the user, so its files are not trusted. They are read before the end is recorded.
"""

from dataclasses import replace

from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.job_file_reader import read_file_without_links
from heliostat.engines.job_variables import IMAGE_DIGEST_FILE
from heliostat.errors import HeliostatError
from heliostat.models import AttemptEnded, EndCause, Job, JobId
from heliostat.models.command_failures import NOT_FOUND_EXIT_CODE, explain_command_not_found
from heliostat.models.image_failures import explain_fetch_failure, explain_push_failure

_MAX_MESSAGE_BYTES = 4000
_MAX_NOTEBOOK_BYTES = 4000
_MAX_DETAIL_LENGTH = 1000
_NOT_STARTED_EXIT_CODES = (125, 126)  # of an attempt whose container was not started
_MAX_FETCH_BYTES = 3000
_FAILED = "failed "


def read_job_text(engine: Engine, job_id: JobId, name: str, max_bytes: int, *, end: bool = False) -> str:
    """The text of a file of the job; empty if it does not exist."""
    return engine.read_job_file(job_id, name, max_bytes, end=end) if isinstance(engine, RunsPrograms) else ""


def read_tool_message(engine: Engine, job_id: JobId) -> str:
    """The last output of the build or push tool, without control characters."""
    return printable_lines(read_job_text(engine, job_id, "work/why", _MAX_MESSAGE_BYTES))


def printable_lines(text: str) -> str:
    """Without control characters and empty lines."""
    lines = [
        " ".join("".join(character for character in line if character.isprintable()).split())
        for line in text.splitlines()
    ]
    return "\n".join(line for line in lines if line)


def read_untrusted_text(path: str, max_bytes: int, *below: str) -> str | None:
    """The text of a file in a user's folder, or `below` it; None: it does not exist."""
    return read_file_without_links(path, max_bytes, *below).decode("utf-8", "replace") or None


def add_notebook_failure(engine: Engine, job: Job, end: AttemptEnded) -> AttemptEnded:
    """With the reason of a failed notebook, if there is one. Idempotent."""
    if end.cause is not EndCause.EXITED or end.exit_code == 0 or job.kind != "batch":
        return end
    text = read_job_text(engine, job.id, f"checkpoints/.notebook-{job.attempt}", _MAX_NOTEBOOK_BYTES)
    reason = " ".join("".join(character if character.isprintable() else " " for character in text).split())
    return replace(end, detail=reason[:_MAX_DETAIL_LENGTH]) if reason else end


def add_image_fetch_failure(engine: Engine, job: Job, end: AttemptEnded) -> AttemptEnded:
    """With the reason, if its image could not be fetched. Idempotent."""
    if end.cause is not EndCause.EXITED or end.exit_code not in _NOT_STARTED_EXIT_CODES:
        return end
    text = read_job_text(engine, job.id, f"checkpoints/{IMAGE_DIGEST_FILE}", _MAX_FETCH_BYTES)
    if not text.startswith(_FAILED):
        return end
    image, _, output = printable_lines(text.removeprefix(_FAILED)).partition("\n")
    return replace(end, detail=explain_fetch_failure(image, output)[:_MAX_DETAIL_LENGTH])


def add_command_not_found(engine: Engine, job: Job, end: AttemptEnded) -> AttemptEnded:
    """With the command that was not found, if it ended with exit code 127."""
    if end.cause is not EndCause.EXITED or end.exit_code != NOT_FOUND_EXIT_CODE or end.detail:
        return end
    if not isinstance(engine, RunsPrograms):
        return end
    try:
        log = engine.read_log(job.id, job.attempt, "stderr", -_MAX_MESSAGE_BYTES, _MAX_MESSAGE_BYTES)
    except (OSError, HeliostatError):
        return end
    output = printable_lines(log.data.decode("utf-8", "replace"))
    return replace(
        end, detail=explain_command_not_found(output, "in its image" if job.spec.image else "on this node")
    )


def add_image_push_failure(engine: Engine, job: Job, end: AttemptEnded) -> AttemptEnded:
    """With the reason of a failed push."""
    if end.cause is not EndCause.EXITED or end.exit_code == 0:
        return end
    return replace(end, detail=explain_push_failure(read_tool_message(engine, job.id)))
