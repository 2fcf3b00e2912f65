"""Why an image did not come, or could not be pushed."""

import re
from dataclasses import replace

from heliostat.controller.leftovers import last_words, left_by, plain_lines
from heliostat.engines.contract import Engine
from heliostat.engines.environment import IMAGE_FILE
from heliostat.models import Cause, Ended, Job
from heliostat.models.images import fetch_words, push_words

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOGIN_SECONDS = 3600.0  # in which its job must have been stored
_NOT_BEGUN = (125, 126)  # with which an attempt ends whose container was not begun
_MOST_NOTED_BYTES = 3000
_FAILED = "failed "
_LONGEST = 1000


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
