"""`helio report`: the usage of a month, or of some days."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_duration

if TYPE_CHECKING:
    from heliostat.client.queue import ReportDays, UsageReportRow

_REPORT_COLUMNS = (
    Column("JOBS", right_aligned=True),
    Column("GPU-H", right_aligned=True),
    Column("OF TOTAL", right_aligned=True),
    Column("CPU-H", right_aligned=True),
    Column("WASTED", right_aligned=True),
    Column("MEAN WAIT", right_aligned=True),
    Column("MEDIAN WAIT", right_aligned=True),
)
_GROUPINGS = ("department", "project", "user", "gpu_type")


def report(
    month: Annotated[str | None, typer.Option(help="Month: 2026-11. Default: the current month.")] = None,
    first_day: Annotated[
        str | None, typer.Option("--from", metavar="DAY", help="First day, instead of a month: 2026-11-01.")
    ] = None,
    last_day: Annotated[
        str | None, typer.Option("--to", metavar="DAY", help="Last day: 2026-11-15. Default: today.")
    ] = None,
    by: Annotated[str, typer.Option(help="Group by department, project, user or gpu-type.")] = "project",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the usage of a period by project, user, department or GPU type.

    Admins see all usage, managers that of their projects, other users their own.
    """
    by = by.replace("-", "_")
    if by not in _GROUPINGS:
        choices = ", ".join(_GROUPINGS).replace("_", "-")
        raise typer.BadParameter(f"{by!a} is not one of {choices}.", param_hint="--by")
    client = connect()
    days: ReportDays = {"first_day": first_day, "last_day": last_day}
    if as_csv:
        sys.stdout.write(client.queue.report_csv(month, by, **days).replace("\r\n", "\n"))
        return
    lines = client.queue.report(month, by, **days)
    if as_json:
        print_json(lines)
        return
    if not lines:
        print("No jobs ran in that period.")
        return
    print_table(
        (Column(by.upper().replace("_", " "), shrinkable=True), *_REPORT_COLUMNS),
        (_report_row(line) for line in lines),
    )
    print_message(
        "WASTED: GPU-hours since the last checkpoint of attempts that failed, timed out, were lost or preempted."
    )


def _report_row(line: "UsageReportRow") -> list[str]:
    return [
        line["name"],
        str(line["jobs"]),
        f"{line['gpu_hours']:.1f}",
        f"{line['fraction_of_total']:.0%}",
        f"{line['cpu_hours']:.1f}",
        f"{line['wasted_gpu_hours']:.1f}",
        format_duration(line["mean_wait_seconds"]),
        format_duration(line["median_wait_seconds"]),
    ]
