"""Why an image did not come. Pushes of images: what the end of one means, what it is at the registry, and logins
nobody needs any more."""

import contextlib
import os
import re
import subprocess
from dataclasses import replace
from datetime import datetime
from functools import partial

from heliostat.config import Home
from heliostat.engines.environment import IMAGE_FILE
from heliostat.engines.folders import JobFolder
from heliostat.models import Cause, Ended, Job
from heliostat.models.images import fetch_words, push_words
from heliostat.store import images as stored
from heliostat.store.database import Store
from heliostat.store.jobs import get_jobs
from heliostat.workers.leftovers import last_words, plain_lines, read_safely

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOGIN_SECONDS = 3600.0  # in which its job must have been stored
_NOT_BEGUN = (125, 126)  # with which an attempt ends whose container was not begun
_MOST_NOTED_BYTES = 3000
_FAILED = "failed "
_LONGEST = 1000


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


def note_pushes(store: Store, home: Home) -> None:
    """What they are at the registry, for those that are over. A crash before leaves it for the next time."""
    with store.read() as conn:
        unread = stored.unread_pushes(conn)
    for push in unread:
        text = read_safely(f"{JobFolder.of(home.jobs, push.job_id).path}/work/digest", 200) or ""
        if found := _DIGEST.match(text):
            store.write(partial(stored.note_pushed, job_id=push.job_id, pushed_digest=found[0]))


def sweep_logins(store: Store, home: Home, now: datetime) -> None:
    """Those whose push has ended, or never was stored. A push takes its own away as soon as it begins."""
    with contextlib.suppress(FileNotFoundError), store.read() as conn:
        entries = list(os.scandir(home.logins))
        if not entries:
            return
        jobs = get_jobs(conn, {push.job_id for push in stored.unfinished_pushes(conn)}).values()
        scripts = [job.spec.script or "" for job in jobs]
        for entry in entries:
            is_old = now.timestamp() - entry.stat(follow_symlinks=False).st_mtime > _LOGIN_SECONDS
            if is_old and not any(entry.name in script for script in scripts):
                words = ["rm", "-rf", "--one-file-system", "--", entry.path]
                subprocess.run(words, check=False, capture_output=True, stdin=subprocess.DEVNULL)
