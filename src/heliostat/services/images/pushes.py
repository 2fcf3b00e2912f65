"""Pushes of images: what they are at the registry, and logins that no push needs any more."""

import contextlib
import os
import re
import subprocess
from datetime import datetime
from functools import partial

from heliostat.config import Home
from heliostat.controller.leftovers import left_by
from heliostat.engines.contract import Engine
from heliostat.store import images as stored
from heliostat.store.database import Store
from heliostat.store.jobs import get_jobs

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")
_LOGIN_SECONDS = 3600.0  # in which its job must have been stored


def note_pushes(store: Store, engine: Engine) -> None:
    """What they are at the registry, for those that are over. A crash before leaves it for the next time."""
    with store.read() as conn:
        unread = stored.unread_pushes(conn)
    for push in unread:
        text = left_by(engine, push.job_id, "work/digest", 200)
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
