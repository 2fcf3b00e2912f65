"""What scripts of ours have left in the folder of a job, which is a person's: read with care.

Among that is why an image did not come or could not be pushed, and why a notebook failed: read before the end is
recorded.
"""

from dataclasses import replace

from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.environment import IMAGE_FILE
from heliostat.engines.job_files import read_below
from heliostat.models import Cause, Ended, Job, JobId
from heliostat.models.images import fetch_words, push_words

_MOST_WORDS_BYTES = 4000

_MOST_BYTES = 4000
_LONGEST = 1000

_NOT_BEGUN = (125, 126)  # with which an attempt ends whose container was not begun
_MOST_NOTED_BYTES = 3000
_FAILED = "failed "


def left_by(engine: Engine, job_id: JobId, name: str, most_bytes: int, *, end: bool = False) -> str:
    """What the job has left under that name; nothing if there is nothing."""
    return engine.read_job_file(job_id, name, most_bytes, end=end) if isinstance(engine, RunsPrograms) else ""


def last_words(engine: Engine, job_id: JobId) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    return plain_lines(left_by(engine, job_id, "work/why", _MOST_WORDS_BYTES))


def plain_lines(text: str) -> str:
    """Without signs that could steer a terminal, and without empty lines."""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_safely(path: str, most_bytes: int, *below: str) -> str | None:
    """The text of a file in a folder that is somebody's, or `below` it; None: there is none."""
    return read_below(path, most_bytes, *below).decode("utf-8", "replace") or None


def settle_notebook(engine: Engine, job: Job, seen: Ended) -> Ended:
    """With the reason, if it failed and said one. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0 or job.kind != "batch":
        return seen
    text = left_by(engine, job.id, f"checkpoints/.notebook-{job.attempt}", _MOST_BYTES)
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return replace(seen, detail=words[:_LONGEST]) if words else seen


def settle_fetch(engine: Engine, job: Job, seen: Ended) -> Ended:
    """With the reason, if its image did not come. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code not in _NOT_BEGUN:
        return seen
    noted = left_by(engine, job.id, f"checkpoints/{IMAGE_FILE}", _MOST_NOTED_BYTES)
    if not noted.startswith(_FAILED):
        return seen
    image, _, said = plain_lines(noted.removeprefix(_FAILED)).partition("\n")
    return replace(seen, detail=fetch_words(image, said)[:_LONGEST])


def settle_push(engine: Engine, job: Job, seen: Ended) -> Ended:
    """With the reason, if it failed."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0:
        return seen
    return replace(seen, detail=push_words(last_words(engine, job.id)))
