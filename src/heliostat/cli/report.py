"""`helio report`: usage or waste of a month or of some days, and a preview of steps against idle GPUs."""

import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_duration, format_time

if TYPE_CHECKING:
    from heliostat.client.queue import IdleJobPreview, ReportDays, UsageReportRow, WasteReportRow


def _numbers(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(title, right_aligned=True) for title in titles)


_USAGE_COLUMNS = _numbers("JOBS", "GPU-H", "OF TOTAL", "CPU-H", "WASTED", "MEAN WAIT", "MEDIAN WAIT")
_WASTE_COLUMNS = _numbers("JOBS", "GRANTED", "USED", "IDLE", "OF GRANTED", "RETURNED")
_IDLE_COLUMNS = (
    *(Column("JOB", right_aligned=True), Column("USER"), Column("PROJECT"), Column("GPUS", right_aligned=True)),
    *(Column("NOTE"), Column("LAST STEP"), Column("AT"), Column("RETURNED", right_aligned=True)),
)
Row = TypeVar("Row")
_GROUPINGS = ("department", "project", "user", "gpu_type")
_KINDS = ("usage", "waste", "idle")


def report(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="[REPORT]",
            help="usage, waste, or idle: what all steps against idle GPUs would have done (admins only).",
        ),
    ] = "usage",
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
    """Show the usage or the waste of a period by project, user or department.

    Admins see all usage, managers that of their projects, other users their own.
    """
    by = by.replace("-", "_")
    _check(kind, by, as_csv)
    queue = connect().queue
    days: ReportDays = {"first_day": first_day, "last_day": last_day}
    if as_csv:
        text = queue.report_csv(month, by, waste=kind == "waste", **days)
        sys.stdout.write(text.replace("\r\n", "\n"))
        return
    if kind == "idle":
        _show(queue.idle_report(month, **days), _print_idle, as_json)
    elif kind == "waste":
        _show(queue.waste_report(month, by, **days), partial(_print_waste, by), as_json)
    else:
        _show(queue.report(month, by, **days), partial(_print_usage, by), as_json)


def _check(kind: str, by: str, as_csv: bool) -> None:
    if kind not in _KINDS:
        raise typer.BadParameter(f"{kind!a} is not one of {', '.join(_KINDS)}.", param_hint="REPORT")
    groupings = _GROUPINGS if kind == "usage" else _GROUPINGS[:-1]
    if by not in groupings:
        given, *choices = (name.replace("_", "-") for name in (by, *groupings))
        raise typer.BadParameter(f"{given!a} is not one of {', '.join(choices)}.", param_hint="--by")
    if as_csv and kind == "idle":
        raise typer.BadParameter("Only the usage and waste reports exist as CSV.", param_hint="--csv")


def _show(lines: list[Row], print_lines: Callable[[list[Row]], None], as_json: bool) -> None:
    if as_json:
        print_json(lines)
    elif lines:
        print_lines(lines)
    else:
        print("No jobs ran in that period." if print_lines is not _print_idle else "No job had idle GPUs.")


def _group_column(by: str) -> Column:
    return Column(by.upper().replace("_", " "), shrinkable=True)


def _print_usage(by: str, lines: "list[UsageReportRow]") -> None:
    energy = _known_energy(lines)
    rows = ([*_usage_row(line), *(_amount(line, name) for name in energy)] for line in lines)
    print_table((_group_column(by), *_USAGE_COLUMNS, *energy.values()), rows)
    print_message(
        "WASTED: GPU-hours since the last checkpoint of attempts that failed, timed out, were lost or preempted."
    )
    if energy:
        is_estimate = any(line["energy_source"] == "estimate" for line in lines)
        source = "estimated from samples of their power" if is_estimate else "measured by their energy counters"
        print_message(f"KWH: energy of the GPUs, {source}.")


_ENERGY_COLUMNS = {
    "energy_kwh": Column("KWH", right_aligned=True),
    "co2_kg": Column("KG CO2", right_aligned=True),
}


def _known_energy(lines: "list[UsageReportRow]") -> dict[str, Column]:
    """Without columns of which nothing is known."""
    return {
        name: column
        for name, column in _ENERGY_COLUMNS.items()
        if any(dict(line).get(name) is not None for line in lines)
    }


def _amount(line: "UsageReportRow", name: str) -> str:
    value = dict(line).get(name)
    return f"{value:.1f}" if isinstance(value, int | float) else "-"


def _usage_row(line: "UsageReportRow") -> list[str]:
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


def _print_waste(by: str, lines: "list[WasteReportRow]") -> None:
    print_table((_group_column(by), *_WASTE_COLUMNS), (_waste_row(line) for line in lines))
    print_message("In GPU-hours. RETURNED: given back early after a note. The rest of GRANTED was not measured.")


def _waste_row(line: "WasteReportRow") -> list[str]:
    granted, idle = line["granted_gpu_hours"], line["idle_gpu_hours"]
    return [
        line["name"],
        str(line["jobs"]),
        f"{granted:.1f}",
        f"{line['used_gpu_hours']:.1f}",
        f"{idle:.1f}",
        f"{idle / granted:.0%}" if granted else "",
        f"{line['returned_gpu_hours']:.1f}",
    ]


def _print_idle(lines: "list[IdleJobPreview]") -> None:
    print_table(_IDLE_COLUMNS, (_idle_row(line) for line in lines))
    hours = sum(line["returned_gpu_hours"] for line in lines)
    print_message(f"With all steps and without answers, {hours:.1f} GPU-hours would have come back.")


def _idle_row(line: "IdleJobPreview") -> list[str]:
    first, last = line["steps"][0], line["steps"][-1]
    return [
        str(line["job_id"]),
        line["user"],
        line["project"],
        str(line["gpus"]),
        format_time(first["at"]),
        last["step"],
        format_time(last["at"]),
        f"{line['returned_gpu_hours']:.1f}",
    ]
