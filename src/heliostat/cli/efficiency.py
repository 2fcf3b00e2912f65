"""`helio efficiency`: what jobs used of what they requested, and what would have been enough."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Cell,
    Column,
    JsonFlag,
    StateCell,
    print_json,
    print_message,
    print_table,
    sanitize_text,
)
from heliostat.cli.stats import format_efficiency, format_job_title
from heliostat.cli.value_format import format_duration, format_mib, parse_duration_option

if TYPE_CHECKING:
    from heliostat.client.api_types import JobData
    from heliostat.client.stats import EnergyEstimate, JobEfficiency, JobStats, SeriesStatistics

_JOB_COLUMNS = (Column("RESOURCE"), *(Column(name, right_aligned=True) for name in ("REQUESTED", "MEAN", "PEAK")))
_LIST_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("NAME", shrinkable=True),
    Column("USER", optional=True),
    Column("STATE"),
    Column("RAN", right_aligned=True),
    Column("GPUS"),
    Column("CPUS"),
    Column("MEM"),
    Column("UNUSED GPU-H", right_aligned=True),
    Column("WOULD BE BETTER", shrinkable=True, min_width=20),
)


def efficiency(
    job: Annotated[int | None, typer.Argument(metavar="[JOB]", show_default=False)] = None,
    mine: Annotated[bool, typer.Option("--mine", help="Your ended jobs. The default.")] = False,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="All its jobs if you manage it; otherwise yours."),
    ] = None,
    since: Annotated[str, typer.Option(metavar="DURATION", help="Jobs that ended in this time: 12h, 30d.")] = "7d",
    as_json: JsonFlag = False,
) -> None:
    """Show what jobs used, and what would have been enough.

    Without a job: your ended jobs, the largest waste first.
    """
    if job is not None and (mine or project is not None):
        raise typer.BadParameter("Name a job, --mine or --project, not several.")
    if mine and project is not None:
        raise typer.BadParameter("Not possible with --mine.", param_hint="--project")
    client = connect()
    if job is not None:
        stats = client.stats.job(job)
        print_json(stats) if as_json else _print_job(client.jobs.get(job).data, stats)
        return
    try:
        begin = datetime.now(UTC) - timedelta(seconds=parse_duration_option(since, "--since"))
    except OverflowError:
        raise typer.BadParameter("is too long.", param_hint="--since") from None
    found = client.stats.efficiency(project, begin)
    print_json(found) if as_json else _print_list(found)


def _print_job(job: "JobData", stats: "JobStats") -> None:
    report = stats["efficiency"]
    print(format_job_title(job))
    print(format_efficiency(report))
    print()
    print_table(_JOB_COLUMNS, _rows(job, stats))
    if report["command"] or report["findings"] or stats.get("energy"):
        print()
    if energy := stats.get("energy"):
        print(f"Energy:    {format_energy(energy)}")
    if report["command"]:
        print(f"Next run:  {report['command']}")
    for guide in dict.fromkeys(finding["guide"] for finding in report["findings"]):
        print(f"Guide:     {guide}")


def _rows(job: "JobData", stats: "JobStats") -> Iterator[list[Cell]]:
    requested, used, sizes = stats["requested"], stats["summary"], stats["device_memory_mib"]
    for rank, device in enumerate(used["devices"]):
        name = sanitize_text(stats["device_names"][rank]) if rank < len(stats["device_names"]) else f"GPU {rank}"
        yield [name, "-", _percent(device["utilisation"], "mean"), _percent(device["utilisation"], "peak")]
        size = sizes[rank] if rank < len(sizes) else None
        yield [f"{name} memory", format_mib(size), *_mib(device["memory_mib"])]
    cpus = used["cpus"]
    yield ["CPUs", str(requested["cpus"]), _number(cpus["mean"]), _number(cpus["peak"])]
    yield ["memory", format_mib(requested["memory_mib"]), *_mib(used["memory_mib"])]
    yield ["time", format_duration(job["time_limit_seconds"]), "-", format_duration(stats["run_seconds"])]


def _print_list(found: "list[JobEfficiency]") -> None:
    if not found:
        print("No job of at least two minutes ended in that time.")
        return
    print_table(_LIST_COLUMNS, (_list_row(each) for each in found))
    print_message("UNUSED GPU-H: GPU-hours in which the job's GPUs did nothing. Details: helio efficiency ID")


def _list_row(each: "JobEfficiency") -> list[Cell]:
    requested, used, report = each["requested"], each["summary"], each["efficiency"]
    gpus = "-" if report["gpus_used"] is None else f"{report['gpus_used']}/{len(used['devices'])}"
    cpus = used["cpus"]["mean"] if used["cpus"]["peak"] is None else used["cpus"]["peak"]
    return [
        str(each["job_id"]),
        sanitize_text(each["name"]),
        each["user"],
        StateCell(each["state"]),
        format_duration(each["run_seconds"]),
        gpus,
        f"{_number(cpus)}/{requested['cpus']}",
        f"{format_mib(used['memory_mib']['peak'])}/{format_mib(requested['memory_mib'])}",
        f"{each['unused_gpu_hours']:.1f}",
        report["options"] or "-",
    ]


def format_energy(energy: "EnergyEstimate") -> str:
    """`about 1.25 kWh and 0.48 kg of CO2`: an estimate."""
    co2 = "" if energy["co2_kg"] is None else f" and {energy['co2_kg']:.2f} kg of CO2"
    return f"about {energy['kwh']:.2f} kWh{co2} for its GPUs, estimated from samples of their power"


def _mib(statistics: "SeriesStatistics") -> list[str]:
    return [format_mib(statistics["mean"]), format_mib(statistics["peak"])]


def _percent(statistics: "SeriesStatistics", name: str) -> str:
    value = statistics["mean"] if name == "mean" else statistics["peak"]
    return "-" if value is None else f"{value:.0f}%"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}".removesuffix(".0")
