"""What scripts of ours have left in the folder of their job, which is a person's: read with care."""

from heliostat.engines.contract import Engine, RunsPrograms
from heliostat.engines.peoples_files import read_below
from heliostat.models import JobId

_MOST_WORDS_BYTES = 4000


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
