"""`helio extend`: more time."""

from typing import Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json


def extend(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    time: Annotated[str, typer.Argument(metavar="TIME", help="How much more: 30m, 2h.")],
    as_json: JsonFlag = False,
) -> None:
    """Give a running or waiting session more time.

    helio extend 12 2h. A batch job only by a manager of its project: others planned with its limit.
    """
    told = connect().jobs.extend(job, time).data
    if as_json:
        print_json(told)
        return
    hours, seconds = divmod(told["time_limit_seconds"] or 0, 3600)
    print(f"The time limit of job {job} is now {hours}h{seconds // 60:02d}m.")
