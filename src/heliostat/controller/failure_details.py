"""What scripts of ours have left in the folder of a job, which is a person's: read with care.

Among that is why an image did not come or could not be pushed, and why a notebook failed: read before the end is
recorded.
"""

from dataclasses import replace

from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.job_files import read_file_without_links
from heliostat.engines.job_variables import IMAGE_DIGEST_FILE
from heliostat.models import AttemptEnded, EndCause, Job, JobId
from heliostat.models.images import explain_fetch_failure, explain_push_failure

_MOST_WORDS_BYTES = 4000

_MOST_BYTES = 4000
_LONGEST = 1000

_NOT_BEGUN = (125, 126)  # with which an attempt ends whose container was not begun
_MOST_NOTED_BYTES = 3000
_FAILED = "failed "


def read_job_text(engine: Engine, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
    """What the job has left under that name; nothing if there is nothing."""
    return engine.read_job_file(job_id, name, most_bytes, end=end) if isinstance(engine, RunsPrograms) else ""


def read_tool_message(engine: Engine, job_id: JobId) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    return printable_lines(read_job_text(engine, job_id, "work/why", _MOST_WORDS_BYTES))


def printable_lines(text: str) -> str:
    """Without signs that could steer a terminal, and without empty lines."""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_untrusted_text(path: str, most_bytes: int, *below: str) -> str | None:
    """The text of a file in a folder that is somebody's, or `below` it; None: there is none."""
    return read_file_without_links(path, most_bytes, *below).decode("utf-8", "replace") or None


def add_notebook_failure(engine: Engine, job: Job, seen: AttemptEnded) -> AttemptEnded:
    """With the reason, if it failed and said one. Repeatable."""
    if seen.cause is not EndCause.EXITED or seen.exit_code == 0 or job.kind != "batch":
        return seen
    text = read_job_text(engine, job.id, f"checkpoints/.notebook-{job.attempt}", _MOST_BYTES)
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return replace(seen, detail=words[:_LONGEST]) if words else seen


def add_image_fetch_failure(engine: Engine, job: Job, seen: AttemptEnded) -> AttemptEnded:
    """With the reason, if its image did not come. Repeatable."""
    if seen.cause is not EndCause.EXITED or seen.exit_code not in _NOT_BEGUN:
        return seen
    noted = read_job_text(engine, job.id, f"checkpoints/{IMAGE_DIGEST_FILE}", _MOST_NOTED_BYTES)
    if not noted.startswith(_FAILED):
        return seen
    image, _, said = printable_lines(noted.removeprefix(_FAILED)).partition("\n")
    return replace(seen, detail=explain_fetch_failure(image, said)[:_LONGEST])


def add_image_push_failure(engine: Engine, job: Job, seen: AttemptEnded) -> AttemptEnded:
    """With the reason, if it failed."""
    if seen.cause is not EndCause.EXITED or seen.exit_code == 0:
        return seen
    return replace(seen, detail=explain_push_failure(read_tool_message(engine, job.id)))
