"""What scripts of ours have left in the folder of a job, which is a person's: read with care.

Among that is why an image did not come or could not be pushed, and why a notebook failed: read before the end is
recorded.
"""

from dataclasses import replace

from heliostat.config import Home
from heliostat.engines.environment import IMAGE_FILE
from heliostat.engines.folders import JobFolder
from heliostat.engines.peoples_files import read_below
from heliostat.models import Cause, Ended, Job
from heliostat.models.images import fetch_words, push_words

_MOST_WORDS_BYTES = 4000

_MOST_BYTES = 4000
_LONGEST = 1000

_NOT_BEGUN = (125, 126)  # with which an attempt ends whose container was not begun
_MOST_NOTED_BYTES = 3000
_FAILED = "failed "


def last_words(work: str) -> str:
    """What the tool said last, as one text without signs that could steer a terminal."""
    return plain_lines(read_safely(f"{work}/why", _MOST_WORDS_BYTES) or "")


def plain_lines(text: str) -> str:
    """Without signs that could steer a terminal, and without empty lines."""
    lines = [" ".join("".join(sign for sign in line if sign.isprintable()).split()) for line in text.splitlines()]
    return "\n".join(line for line in lines if line)


def read_safely(path: str, most_bytes: int, *below: str) -> str | None:
    """The text of a file in a folder that is somebody's, or `below` it; None: there is none."""
    return read_below(path, most_bytes, *below).decode("utf-8", "replace") or None


def settle_notebook(home: Home, job: Job, seen: Ended) -> Ended:
    """With the reason, if it failed and said one. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0 or job.kind != "batch":
        return seen
    text = read_safely(JobFolder.of(home.jobs, job.id).checkpoints, _MOST_BYTES, f".notebook-{job.attempt}") or ""
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return replace(seen, detail=words[:_LONGEST]) if words else seen


def settle_fetch(home: Home, job: Job, seen: Ended) -> Ended:
    """With the reason, if its image did not come. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code not in _NOT_BEGUN:
        return seen
    noted = read_safely(JobFolder.of(home.jobs, job.id).checkpoints, _MOST_NOTED_BYTES, IMAGE_FILE) or ""
    if not noted.startswith(_FAILED):
        return seen
    image, _, said = plain_lines(noted.removeprefix(_FAILED)).partition("\n")
    return replace(seen, detail=fetch_words(image, said)[:_LONGEST])


def settle_push(work: str, seen: Ended) -> Ended:
    """With the reason, if it failed."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0:
        return seen
    return replace(seen, detail=push_words(last_words(work)))
