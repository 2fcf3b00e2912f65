"""`helio run`: submits a command as a job, an array of jobs or a sweep."""

from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_options import IsolateOption, isolate_job, job_options, parse_command
from heliostat.cli.output import JsonFlag
from heliostat.cli.submitted_job_report import (
    FollowOption,
    WaitOption,
    report_submitted_array,
    report_submitted_job,
)
from heliostat.cli.uploads import upload_with_progress


@job_options("run")
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="CMD", help="Command and arguments, or one quoted line for the shell.", show_default=False
        ),
    ] = None,
    *,
    job: dict[str, Any],
    isolate: IsolateOption = False,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="One run per value: lr=0.1,0.01 or seed=1..5. May be repeated: all combinations."),
    ] = None,
    no_record: Annotated[
        bool, typer.Option("--no-record", help="Do not record the git state of the code.")
    ] = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a command as a job.

    helio run --gpus 1 --memory 16G --time 4h -- python train.py
    """
    if not command and "script" not in job:
        raise typer.BadParameter("The command is missing: helio run [OPTIONS] -- CMD", param_hint="CMD")
    if sweep and "array" in job:
        raise typer.BadParameter("A sweep is an array already: omit --array.", param_hint="--sweep")
    job = isolate_job(job) if isolate else job
    client = connect()
    job |= {"command": parse_command(command, has_script="script" in job)}
    job |= {"upload": upload_with_progress(client, job["upload"])} if "upload" in job else {}
    job |= {"record": False} if no_record else {}
    if sweep:
        from heliostat.cli.sweeps import submit_grid

        submit_grid(client, job, sweep, wait, follow, as_json)
    elif "array" in job:
        report_submitted_array(client, client.submit(**job), wait, follow, as_json)
    else:
        report_submitted_job(client, client.submit(**job), wait, follow, as_json)


# Options after the first word of CMD belong to CMD, with or without `--`.
run.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]
