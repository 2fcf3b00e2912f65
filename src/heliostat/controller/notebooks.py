"""Why a batch notebook failed: what its runner has left of that, before the end is recorded."""

from dataclasses import replace

from heliostat.controller.leftovers import left_by
from heliostat.engines.contract import Engine
from heliostat.models import Cause, Ended, Job

_MOST_BYTES = 4000
_LONGEST = 1000


def settle_notebook(engine: Engine, job: Job, seen: Ended) -> Ended:
    """With the reason, if it failed and said one. Repeatable."""
    if seen.cause is not Cause.EXITED or seen.exit_code == 0 or job.kind != "batch":
        return seen
    text = left_by(engine, job.id, f"checkpoints/.notebook-{job.attempt}", _MOST_BYTES)
    words = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return replace(seen, detail=words[:_LONGEST]) if words else seen
