"""`helio run`: submits a command as a job, an array of jobs or a sweep."""

import os
from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_defaults import merge_job_fields
from heliostat.cli.job_options import IsolateOption, isolate_job, job_options, parse_command
from heliostat.cli.job_submission import DryRunOption, ReportFlags, job_layers, submit_job, upload_job_folder
from heliostat.cli.output import JsonFlag
from heliostat.cli.script_options import has_script_options, read_script, warn_about_late_options
from heliostat.cli.submitted_job_report import FollowOption, WaitOption
from heliostat.cli.uploads import warn_about_empty_folder


@job_options("run", with_defaults=False)
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
    dry_run: DryRunOption = False,
    wait: WaitOption = False,
    follow: FollowOption = False,
    as_json: JsonFlag = False,
) -> None:
    """Submit a command as a job.

    helio run --gpus 1 --memory 16G --time 4h -- python train.py
    """
    if not command and "script" not in job:
        raise typer.BadParameter("The command is missing: helio run [OPTIONS] -- CMD", param_hint="CMD")
    words, job, script_name = command or [], isolate_job(job) if isolate else job, None
    text = None if "script" in job else read_script(words[0])
    if text is not None and has_script_options(text):
        job, script_name, words = {**job, "script": text}, os.path.basename(words[0]), words[1:]
    elif text is not None:
        warn_about_late_options(text)
    job |= {"command": parse_command(words, has_script="script" in job)}
    job |= {"record": False} if no_record else {}
    layers = job_layers(job, script_name)
    job = merge_job_fields(*layers.values())
    if sweep and "array" in job:
        raise typer.BadParameter("A sweep is an array already: omit --array.", param_hint="--sweep")
    flags = ReportFlags(wait, follow, as_json, dry_run)
    if sweep:
        from heliostat.cli.sweeps import submit_grid

        if dry_run:
            raise typer.BadParameter("Not possible with --sweep.", param_hint="--dry-run")
        client = connect()
        warn_about_empty_folder(client, [job], ("--upload .", "--workdir PATH"))
        submit_grid(client, upload_job_folder(client, job), sweep, wait, follow, as_json)
    else:
        submit_job(connect(), layers, flags)


# Options after the first word of CMD belong to CMD, with or without `--`.
run.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]
