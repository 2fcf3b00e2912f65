"""`helio wait`: wait for the end of jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    JsonFlag,
    print_json,
)
from heliostat.cli.submitted_job_report import first_failed_exit_code, print_job_end
from heliostat.cli.value_format import parse_duration_option
from heliostat.errors import HeliostatError

if TYPE_CHECKING:
    pass


def wait(
    jobs: Annotated[list[int], typer.Argument(metavar="JOB", help="Job ids.")],
    timeout: Annotated[str | None, typer.Option(help="Stop waiting after this time: 30s, 10m, 2h.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Wait until jobs have ended.

    Exits with 0 if all jobs have completed, otherwise with the exit code of the first that has not.
    """
    seconds = None if timeout is None else parse_duration_option(timeout, "--timeout")
    try:
        ended = [job.data for job in connect().wait(jobs, seconds)]
    except TimeoutError as error:
        raise HeliostatError(f"{error}.", "The jobs continue; helio ps lists them.") from error
    if as_json:
        print_json(ended)
    else:
        for job in ended:
            print_job_end(job)
    raise typer.Exit(first_failed_exit_code(ended))
