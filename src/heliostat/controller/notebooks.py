"""Why a batch notebook failed: what its runner has left of that, before the end is recorded."""

from dataclasses import replace

from heliostat.config import Home
from heliostat.controller.leftovers import read_safely
from heliostat.engines.folders import JobFolder
from heliostat.models import Cause, Ended, Job

_MOST_BYTES = 4000
_LONGEST = 1000


def settle_notebook(home: Home, job: Job, seen: Ended) -> Ended:
    """With the reason, if it failed and said one. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0 or job.kind != "batch":
        return seen
    text = read_safely(JobFolder.of(home.jobs, job.id).checkpoints, _MOST_BYTES, f".notebook-{job.attempt}") or ""
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return replace(seen, detail=words[:_LONGEST]) if words else seen
