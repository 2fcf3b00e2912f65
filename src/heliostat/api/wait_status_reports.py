"""Why a followed job waits, for its log stream."""

import time
from typing import Any

from starlette.concurrency import run_in_threadpool

from heliostat.api.serialization import serialize_wait_status
from heliostat.models import WAITING_STATES, Job
from heliostat.services.context import Context
from heliostat.services.jobs.wait_status import WaitStatus, find_wait_status

_CHECK_SECONDS = 2.0
_FIRST_CHECK_SECONDS = 0.3  # most jobs start at once


class WaitReporter:
    """Reports the changes of why a job waits, to one follower of its log."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported: WaitStatus | None = None
        self._next_check = time.monotonic() + _FIRST_CHECK_SECONDS

    @property
    def seconds_until_check(self) -> float:
        return max(0.0, self._next_check - time.monotonic())

    async def find_change(self, job: Job) -> dict[str, Any] | None:
        """The status of the job, if it waits and the status has changed since the last one, or if it stopped
        waiting."""
        if job.state not in WAITING_STATES:
            was_waiting, self._reported = self._reported is not None, None
            return serialize_wait_status(WaitStatus(job.state)) if was_waiting else None
        if self.seconds_until_check > 0.0:
            return None
        self._next_check = time.monotonic() + _CHECK_SECONDS
        status = await run_in_threadpool(find_wait_status, self._context, job)
        if status == self._reported:
            return None
        self._reported = status
        return serialize_wait_status(status)
