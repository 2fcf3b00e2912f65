"""Counts starts, waits and ends of jobs since the server started, for monitoring."""

import time

from heliostat.controller.transition_rules import OUT_OF_MEMORY
from heliostat.metrics import CountByLabels, Histogram
from heliostat.models import ACTIVE_STATES, Job, JobState

_WAIT_BUCKETS = (1, 10, 60, 300, 1800, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)  # seconds


class JobCounts:
    def __init__(self) -> None:
        self.waits = Histogram(_WAIT_BUCKETS)  # by priority class
        self.ends = CountByLabels()  # by cause
        self.starts = 0
        self._last_start = time.monotonic()

    @property
    def seconds_since_start(self) -> float:
        """Since a job, or the server itself, has started."""
        return time.monotonic() - self._last_start

    def record_change(self, before: Job, after: Job) -> None:
        if after.state in ACTIVE_STATES and before.state not in ACTIVE_STATES:
            self.starts += 1
            self._last_start = time.monotonic()
            self.waits.observe(after.waited_seconds, after.priority_class)
        elif after.is_terminal and not before.is_terminal:
            self.ends.add(_end_cause(after))


def _end_cause(job: Job) -> str:
    """Its final state; or that it ran out of memory, which users and admins can change."""
    is_out_of_memory = job.state is JobState.FAILED and (job.reason or "").startswith(OUT_OF_MEMORY)
    return "out_of_memory" if is_out_of_memory else job.state.value
