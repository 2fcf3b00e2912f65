"""How the end of a job becomes the exit code of a command."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from heliostat.cli.output import State, say, styled
from heliostat.cli.units import duration, seconds_between

if TYPE_CHECKING:
    from heliostat.client.shapes import JobData

_OF_STATE = {"completed": 0, "cancelled": 130, "timed_out": 124, "lost": 125}


def exit_code(job: "JobData") -> int:
    """The job's own; 130 cancelled, 124 timed out, 125 lost."""
    code = _OF_STATE.get(job["state"])
    if code is None:
        return job.get("exit_code") or 1
    return code


def first_failure(jobs: Iterable["JobData"]) -> int:
    return next((code for job in jobs if (code := exit_code(job))), 0)


def say_end(job: "JobData") -> None:
    took = seconds_between(job.get("started_at"), job.get("ended_at"))
    after = f" after {duration(took)}" if took is not None and job.get("ended_at") else ""
    why = f": {job['reason']}" if job.get("reason") else ""
    say(f"Job {job['id']} {styled(State(job['state']), sys.stderr)}{after}{why}")


def say_left_running(job_ids: Iterable[int]) -> None:
    """Ctrl-C stops the waiting, not the job."""
    ids = " ".join(str(job_id) for job_id in job_ids)
    say(f"\nNo longer waiting; the job goes on. Watch it: helio logs -f {ids}   Stop it: helio cancel {ids}")
