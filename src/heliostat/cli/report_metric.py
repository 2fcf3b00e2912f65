"""`helio report-metric`: a job's word on how well it does."""

from typing import Annotated

import typer

from heliostat.cli.output import JsonFlag, print_json


def report_metric(
    name: Annotated[str, typer.Argument(metavar="NAME", help="accuracy, loss…")],
    value: Annotated[float, typer.Argument(metavar="VALUE", help="A number.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="The step it belongs to.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report a metric of the job it is called from.

    helio report-metric accuracy 0.93 --step 100

    It needs no server and no token: it writes a line to a file in the job's own folder.
    """
    from heliostat.client.sweeps import report_metric as report

    report(name, value, step)
    if as_json:
        print_json({"name": name, "value": value, "step": step})
