"""`helio wait`: wait for the end of jobs."""

from typing import Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_selection import JobsArgument, MineOption, NameOption, select_jobs
from heliostat.cli.output import JsonFlag, print_json
from heliostat.cli.submitted_job_report import first_failed_exit_code, print_job_end
from heliostat.cli.value_format import parse_duration_option


def wait(
    jobs: JobsArgument = None,
    mine: MineOption = False,
    name: NameOption = None,
    timeout: Annotated[str | None, typer.Option(help="Stop waiting after this time: 30s, 10m, 2h.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until jobs have ended.

    Exits with 0 if all jobs have completed, otherwise with the exit code of the first that has not, and with 7
    after --timeout.
    """
    seconds = None if timeout is None else parse_duration_option(timeout, "--timeout")
    client = connect()
    ended = [job.data for job in client.wait(select_jobs(client, jobs, mine, name), seconds)]
    if as_json:
        print_json(ended)
    else:
        for job in ended:
            print_job_end(job)
    raise typer.Exit(first_failed_exit_code(ended))
