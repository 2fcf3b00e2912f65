"""Why a job waits and when it starts, for users who follow it."""

import contextlib
from dataclasses import dataclass

from heliostat.errors import HeliostatError
from heliostat.models import ACTIVE_STATES, DependencyCondition, Job, JobState
from heliostat.scheduling.forecast import Forecast
from heliostat.services.context import Context
from heliostat.services.logs.reader import LogRange, read_log
from heliostat.store.jobs import get_jobs_without_spec

_TAIL_BYTES = 1000


@dataclass(frozen=True, slots=True)
class WaitStatus:
    state: JobState
    reason: str = ""
    position: int | None = None  # in the queue; 1: next
    pending: int = 0  # jobs in the queue
    forecast: Forecast | None = None


def find_wait_status(context: Context, job: Job) -> WaitStatus:
    """Of a pending or held job."""
    if job.state is JobState.HELD:
        return WaitStatus(
            job.state, f"{f'{job.reason}; ' if job.reason else ''}release it: helio release {job.id}"
        )
    reason = context.controller.wait_reason(job) or "was just submitted"
    if output := last_build_output(context, job):
        reason = f"{reason}: {output}"
    wait = context.controller.explain_wait(job.id)
    position, pending = (wait.position, wait.pending) if wait else (None, 0)
    return WaitStatus(job.state, reason, position, pending, context.forecaster.forecast_of(job))


def unfinished_builds(context: Context, job: Job) -> list[Job]:
    """The builds of its environment or image."""
    ids = [parent.parent_id for parent in job.after if parent.condition is DependencyCondition.BUILT]
    if not ids or job.parents_left == 0:
        return []
    with context.store.read() as conn:
        return [build for build in get_jobs_without_spec(conn, ids).values() if not build.is_terminal]


def last_build_output(context: Context, job: Job) -> str:
    """The last line that a build of its environment has printed; empty: none."""
    for build in unfinished_builds(context, job):
        if build.state in ACTIVE_STATES:
            with contextlib.suppress(HeliostatError):
                text = read_log(context, build, LogRange("stdout", -_TAIL_BYTES)).data.decode("utf-8", "replace")
                lines = [line.strip() for line in text.splitlines() if line.strip()]
                if lines:
                    return "".join(char for char in lines[-1] if char.isprintable())
    return ""
