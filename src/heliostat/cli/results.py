"""`helio results`: what a job left for people to fetch."""

from typing import Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, counted, print_json, say


def results(
    job: Annotated[int, typer.Argument(metavar="JOB", help="A job id.")],
    to: Annotated[str | None, typer.Option(help="Into this folder; otherwise results-JOB.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fetch what a job left in its folder results.

    Of a notebook: the executed notebook and a page of it, also when a cell failed.
    """
    folder = to or f"results-{job}"
    saved = [str(path) for path in connect().files.save_results(job, folder)]
    if as_json:
        print_json({"job_id": job, "files": saved})
        return
    for path in saved:
        print(path)
    say(f"{counted(len(saved), 'file')} saved." if saved else f"Job {job} has left no results (yet).")
