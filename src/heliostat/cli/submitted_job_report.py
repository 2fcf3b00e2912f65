"""Reports submitted jobs, waits for their end, and derives the exit code of the command."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from heliostat.cli.output import (
    StateCell,
    format_cell,
    format_count,
    print_json,
    print_json_line,
    print_message,
    sanitize_text,
)
from heliostat.cli.value_format import format_duration, seconds_between

if TYPE_CHECKING:
    from heliostat.client import Client, JobArray, JobHandle
    from heliostat.client.api_types import JobData

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job ends; exit with its exit code.")]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Print its output until it ends; exit with its exit code.")
]
_EXIT_CODES = {"completed": 0, "cancelled": 130, "timed_out": 124, "lost": 125}


def exit_code_for_job(job: "JobData") -> int:
    """The exit code of the job; 130 if cancelled, 124 if timed out, 125 if lost."""
    code = _EXIT_CODES.get(job["state"])
    if code is None:
        return job.get("exit_code") or 1
    return code


def first_failed_exit_code(jobs: Iterable["JobData"]) -> int:
    return next((code for job in jobs if (code := exit_code_for_job(job))), 0)


def print_hints(hints: Iterable[Mapping[str, str]]) -> None:
    """What earlier jobs with the same name used, from the response to a submission."""
    for hint in hints:
        print_message(sanitize_text(hint["text"]))


def print_job_end(job: "JobData") -> None:
    took = seconds_between(job.get("started_at"), job.get("ended_at"))
    after = f" after {format_duration(took)}" if took is not None and job.get("ended_at") else ""
    reason = f": {job['reason']}" if job.get("reason") else ""
    state = format_cell(StateCell(job["state"]), sys.stderr).replace("timed_out", "timed out")
    print_message(f"Job {job['id']} {state}{after}{reason}")


def print_left_running_hint(job_ids: Iterable[int]) -> None:
    """After Ctrl-C, which stops the wait but not the jobs."""
    ids = " ".join(str(job_id) for job_id in job_ids)
    print_message(
        f"\nStopped waiting; the job continues. Watch it: helio logs -f {ids}   Cancel it: helio cancel {ids}"
    )


def report_submitted_job(client: "Client", job: "JobHandle", wait: bool, follow: bool, as_json: bool) -> None:
    """Prints the submitted job. With `wait` or `follow`, waits for its end and exits with its exit code."""
    if not as_json:
        print_hints(job.data.get("hints", ()))
    if not (wait or follow):
        if as_json:
            print_json(job.data)
        else:
            print(f"Job {job.id} {format_cell(StateCell(job.data['state']))}. Watch it: helio logs -f {job.id}")
        return
    print_message(f"Job {job.id} {format_cell(StateCell(job.data['state']), sys.stderr)}")
    try:
        if follow:
            _print_followed(client, job, as_json)
        job.wait()
    except KeyboardInterrupt:
        print_left_running_hint([job.id])
        raise typer.Exit(130) from None
    if as_json:
        (print_json_line if follow else print_json)(job.data)
    print_job_end(job.data)
    raise typer.Exit(exit_code_for_job(job.data))


def report_submitted_array(client: "Client", array: "JobArray", wait: bool, follow: bool, as_json: bool) -> None:
    """Prints the submitted array. With `wait` or `follow`, waits for the end of its jobs."""
    ids = [job.id for job in array]
    submitted = {"array_id": array.id, "count": len(array), "job_ids": ids}
    count = format_count(len(array), "job")
    message = f"Array {array.id} of {count} submitted. List its jobs: helio ps --array {array.id}"
    if not (wait or follow):
        print_json(submitted) if as_json else print(message)
        return
    if not as_json:
        print_message(message)
    wait_for_submitted_jobs(client, ids, f"array:{array.id}", submitted, follow, as_json)


def wait_for_submitted_jobs(
    client: "Client",
    job_ids: Sequence[int],
    reference: str,
    submitted: dict[str, Any],
    follow: bool,
    as_json: bool,
) -> NoReturn:
    """Waits until the jobs of an array or a sweep have ended; exits with the exit code of the first failure."""
    try:
        if follow:
            from heliostat.cli.combined_logs import follow_jobs

            follow_jobs(client, job_ids, as_json=as_json)
        ended = client.wait(job_ids)
    except KeyboardInterrupt:
        print_message(
            f"\nStopped waiting; the jobs continue."
            f" Watch them: helio logs -f {reference}   Cancel them: helio cancel {reference}"
        )
        raise typer.Exit(130) from None
    if as_json:
        (print_json_line if follow else print_json)({**submitted, "jobs": [job.data for job in ended]})
    print_message(f"{sum(job.ok for job in ended)} of {format_count(len(ended), 'job')} completed.")
    raise typer.Exit(first_failed_exit_code(job.data for job in ended))


def _print_followed(client: "Client", job: "JobHandle", as_json: bool) -> None:
    from heliostat.cli.logs import print_followed_log

    print_followed_log(client.logs.follow(job), job.id, as_json)
