"""`helio results`: download the results folder of a job."""

from typing import Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    JsonFlag,
    format_count,
    print_json,
    print_message,
    sanitize_text,
)


def results(
    job: Annotated[int, typer.Argument(metavar="JOB", help="Job id.")],
    to: Annotated[
        str | None, typer.Option(help="Folder to save into: a new one, or one of yours. Default: results-JOB.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Download the results folder of a job.

    For a notebook job: the executed notebook and an HTML page of it, even if a cell failed.
    """
    folder = to or f"results-{job}"
    saved = [str(path) for path in connect().files.save_results(job, folder)]
    if as_json:
        print_json({"job_id": job, "files": saved})
        return
    for path in saved:
        print(sanitize_text(path))
    print_message(f"{format_count(len(saved), 'file')} saved." if saved else f"Job {job} has no results yet.")
