"""`helio report-metric`: metrics from inside a job."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.output import JsonFlag, print_json

if TYPE_CHECKING:
    pass


def report_metric(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the metric: accuracy, loss…")],
    value: Annotated[float, typer.Argument(metavar="VALUE", help="A number.")],
    step: Annotated[int | None, typer.Option("--step", metavar="N", help="Training step of the value.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Report a metric from inside a job.

    helio report-metric accuracy 0.93 --step 100

    Needs no server and no token: it appends a line to a file in the folder of the job.
    """
    from heliostat.client.report_metric import report_metric as report

    report(name, value, step)
    if as_json:
        print_json({"name": name, "value": value, "step": step})


report_metric.context_settings = {"ignore_unknown_options": True}  # type: ignore[attr-defined] # -1e-3 is a value
