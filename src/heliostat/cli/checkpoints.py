"""`helio checkpointed`: a job's word that its work is saved."""

from typing import Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json
from heliostat.cli.units import clock


def checkpointed(
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help="The job it is called from, unless said.", show_default=False),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say that a running job has saved its work.

    What it did until now is not lost when it is stopped for others. Call it from within the job.
    """
    data = connect().jobs.checkpointed(job).data
    if as_json:
        print_json(data)
    else:
        print(f"Job {data['id']}: work until {clock(data['checkpointed_at'])} is saved.")
