"""`helio run`: one command, or one per index of an array, into the queue."""

from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_options import job_options, parse_command
from heliostat.cli.job_wait import report_submitted_array, report_submitted_job
from heliostat.cli.output import JsonFlag
from heliostat.cli.uploads import upload_with_progress


@job_options("run")
def run(
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="CMD", help="Words, or one quoted shell line.", show_default=False),
    ] = None,
    *,
    job: dict[str, Any],
    isolate: Annotated[bool, typer.Option("--isolate", help="The same as --runtime bubblewrap.")] = False,
    sweep: Annotated[list[str] | None, typer.Option(help="A run of each: lr=0.1,0.01 or seed=1..5.")] = None,
    no_record: Annotated[bool, typer.Option("--no-record", help="Do not note the state of the code.")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for its end; exit with its code.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print its output; exit with its code.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Put a command into the queue.

    helio run --gpus 1 --memory 16G --time 4h -- python train.py
    """
    if not command and "script" not in job:
        raise typer.BadParameter("Say what to run: helio run [OPTIONS] -- CMD", param_hint="CMD")
    if follow and "array" in job:
        raise typer.BadParameter("An array has many outputs: use --wait, then helio logs.", param_hint="--follow")
    if sweep and ("array" in job or wait or follow):
        raise typer.BadParameter("A sweep is an array of its own: see helio sweep show.", param_hint="--sweep")
    if isolate and ("image" in job or job.get("runtime", "bubblewrap") != "bubblewrap"):
        raise typer.BadParameter("That is --runtime bubblewrap, without an image.", param_hint="--isolate")
    client = connect()
    job |= {"command": parse_command(command, has_script="script" in job)}
    job |= {"runtime": "bubblewrap"} if isolate else {}
    job |= {"upload": upload_with_progress(client, job["upload"])} if "upload" in job else {}
    job |= {"record": False} if no_record else {}
    if sweep:
        from heliostat.cli.sweeps import submit_grid

        submit_grid(client, job, sweep, as_json)
    elif "array" in job:
        report_submitted_array(client.submit(**job), wait, as_json)
    else:
        report_submitted_job(client, client.submit(**job), wait, follow, as_json)


# What follows the first word of CMD belongs to CMD, with or without `--`.
run.context_settings = {"allow_interspersed_args": False}  # type: ignore[attr-defined]
