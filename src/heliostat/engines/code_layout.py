"""Code layout: copies uploaded code into job folders before the start, in threads of its own.

A copy of 50,000 files takes a while. Starts of jobs without uploaded code never wait for it, and those of other
users with uploaded code wait for a few copies at most.
"""

import contextlib
import os
import threading
from collections.abc import Callable, Sequence

from heliostat.config import Home
from heliostat.engines.fair_pool import FairPool
from heliostat.engines.job_folders import (
    AttemptRefused,
    JobFolder,
    lay_out_code,
    require_run_as_user,
)
from heliostat.models import Attempt, AttemptId


class CodeLayout:
    """A copy that fails is tried again by the start, which reports the reason."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._pool = FairPool("code-layout")
        self._pending: set[AttemptId] = set()
        self._lock = threading.Lock()

    def is_missing(self, attempt: Attempt) -> bool:
        """Whether code must be copied before the start."""
        spec = attempt.job.spec
        return (
            spec.upload is not None
            and spec.workdir is None
            and not os.path.isdir(self._folder(attempt).code_folder)
        )

    def is_pending(self, attempt_id: AttemptId) -> bool:
        with self._lock:
            return attempt_id in self._pending

    def lay_out(self, attempts: Sequence[Attempt], then: Callable[[], object]) -> None:
        """For attempts of one user. Calls `then` from another thread when all are laid out."""
        with self._lock:
            self._pending.update(attempt.id for attempt in attempts)
        self._pool.submit(attempts[0].job.user, lambda: self._copy(attempts, then))

    def close(self) -> None:
        self._pool.close()

    def _copy(self, attempts: Sequence[Attempt], then: Callable[[], object]) -> None:
        for attempt in attempts:
            with contextlib.suppress(AttemptRefused, OSError):
                run_as = require_run_as_user(attempt.job.unix_user)
                lay_out_code(attempt.job, run_as, self._folder(attempt), self._home.uploads)
        with self._lock:
            self._pending.difference_update(attempt.id for attempt in attempts)
        then()

    def _folder(self, attempt: Attempt) -> JobFolder:
        return JobFolder.for_job(self._home.jobs, attempt.job.id)
