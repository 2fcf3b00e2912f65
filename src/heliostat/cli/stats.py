"""`helio stats`: resource usage of a job, a node or the cluster over time, with sparklines."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_format import format_accounted_usage
from heliostat.cli.output import (
    Column,
    JsonFlag,
    StateCell,
    format_cell,
    print_json,
    print_json_line,
    print_table,
    sanitize_text,
)
from heliostat.cli.value_format import format_duration, format_mib, format_time, parse_time, seconds_between

if TYPE_CHECKING:
    from rich.console import RenderableType

    from heliostat.client import Client
    from heliostat.client.api_types import JobData
    from heliostat.client.stats import EfficiencyReport, JobStats, TimeSeries

_TERMINAL = {"completed", "failed", "cancelled", "timed_out", "lost"}
_REFRESH_SECONDS = 5.0
_MAX_SPARKLINE_WIDTH = 60
_TITLES = ("NOW", "MEAN", "PEAK", "TOTAL")
_COLOURS = {"%": "green", "cores": "cyan", "MiB": "magenta", "GPUs": "yellow", "jobs": "blue"}
_CLUSTER = {
    "gpus_allocated": ("GPUs allocated", "gpus"),
    "gpu_utilisation": ("GPU load", None),
    "cpus_allocated": ("CPUs allocated", "cpus"),
    "cpus_used": ("CPUs busy", "cpus"),
    "memory_held": ("memory allocated", "memory"),
    "memory_used": ("memory in use", "memory"),
    "running": ("jobs running", None),
    "pending": ("jobs waiting", None),
}
"""Rows of the cluster: title, and the series that holds the total amount. Totals are not rows of their own."""
SPARKLINE_BLOCKS = "▁▂▃▄▅▆▇█"
Values = Sequence[float | None]


class TimeSpan(StrEnum):
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


class UsageRow(NamedTuple):
    name: str
    series: "TimeSeries"
    total: float | None  # the total or requested amount
    scale_max: float  # top of the sparkline


class StatsView(NamedTuple):
    lines: tuple[str, ...]  # above the rows
    rows: list[UsageRow]
    response: Any
    has_accounted_usage: bool = False  # the engine's accounting has usage, even without samples


def stats(
    job: Annotated[int | None, typer.Argument(metavar="[JOB]", show_default=False)] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Show the usage of this node.")] = None,
    span: Annotated[TimeSpan, typer.Option(help="Time span for a node or the cluster, up to now.")] = TimeSpan.DAY,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Refresh every 5 s until the job ends or Ctrl-C.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show the resource usage of a job, a node or the cluster.

    For a job, its whole run time. Without a job or --node, the cluster.
    """
    if job is not None and node is not None:
        raise typer.BadParameter("Name a job or --node, not both.")
    client = connect()
    if follow:
        _follow(client, job, node, span.value, as_json)
        return
    view = _fetch(client, job, node, span.value)
    if as_json:
        print_json(view.response)
    else:
        _print(view)


def _fetch(client: "Client", job: int | None, node: str | None, span: str) -> StatsView:
    if job is not None:
        return _job_view(client.jobs.get(job).data, client.stats.job(job))
    if node is not None:
        stats = client.stats.node(node, span)
        details = client.nodes.get(node)
        totals: dict[str, float] = {"cpu": details["cpus"], "memory": details["memory_mib"]}
        devices = details["devices"]
        totals |= {f"gpu{place}_memory": device["memory_mib"] for place, device in enumerate(devices)}
        rows = _usage_rows(stats["series"], totals, [f"GPU {device['number']}" for device in devices])
        return StatsView((f"Node {node}, last {span}",), list(rows), stats)
    cluster = client.stats.cluster(span)
    return StatsView((f"Cluster, last {span}",), list(_cluster_rows(cluster["series"])), cluster)


def format_job_title(job: "JobData") -> str:
    """`Job 12 train running for 2h10m on gpu1`."""
    run_time = format_duration(seconds_between(job["started_at"], job["ended_at"])) if job["started_at"] else None
    parts = [
        f"Job {job['id']}",
        sanitize_text(job["name"] or ""),
        format_cell(StateCell(job["state"])),
        f"for {run_time}" if run_time else "",
        f"on {job['node']}" if job["node"] else "",
    ]
    return " ".join(filter(None, parts))


def _job_view(job: "JobData", stats: "JobStats") -> StatsView:
    requested = stats["requested"]
    totals: dict[str, float] = {"cpu": requested["cpus"], "memory": requested["memory_mib"]}
    totals |= {f"gpu{rank}_memory": mib for rank, mib in enumerate(stats["device_memory_mib"]) if mib is not None}
    lines = [format_job_title(job), format_efficiency(stats["efficiency"])]
    if used := format_accounted_usage(stats.get("accounting_usage")):
        lines.append(f"Total usage: {used}.")
    return StatsView(
        tuple(lines), list(_usage_rows(stats["series"], totals, stats["device_names"])), stats, bool(used)
    )


def format_efficiency(efficiency: "EfficiencyReport") -> str:
    """Its sentences, with colour on a terminal."""
    sentence = as_sentence(efficiency["text"])
    if efficiency["advice"]:
        sentence += f" {as_sentence(efficiency['advice'])}"
    if not efficiency["judged"] or not sys.stdout.isatty():
        return sentence
    wasteful = efficiency["wasteful"]
    return typer.style(f"{'!' if wasteful else '✓'} {sentence}", fg="yellow" if wasteful else "bright_green")


def as_sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _usage_rows(
    all_series: "Sequence[TimeSeries]", totals: dict[str, float], device_names: Sequence[str] = ()
) -> Iterator[UsageRow]:
    for series in all_series:
        if max_value(series["max"]) is not None:
            yield _row(_title(series["name"], device_names), series, totals.get(series["name"]))


def _cluster_rows(all_series: "Sequence[TimeSeries]") -> Iterator[UsageRow]:
    by_name = {series["name"]: series for series in all_series}
    for name, (title, total) in _CLUSTER.items():
        if name in by_name and max_value(by_name[name]["max"]) is not None:
            yield _row(title, by_name[name], by_name[total]["last"] if total in by_name else None)


def _row(title: str, series: "TimeSeries", total: float | None) -> UsageRow:
    scale_max = 100.0 if series["unit"] == "%" else max(total or 0, max_value(series["mean"]) or 0) or 1.0
    return UsageRow(title, series, total, scale_max)


def _title(name: str, device_names: Sequence[str]) -> str:
    """`GPU 3 memory` for gpu0_memory, if that is the name of the first GPU."""
    device, _, metric = name.partition("_")
    if not metric:
        return {"cpu": "CPUs busy"}.get(name, name)
    rank = int(device.removeprefix("gpu"))
    title = device_names[rank] if rank < len(device_names) else f"GPU {rank}"
    return f"{sanitize_text(title)} {'load' if metric == 'utilisation' else metric}"


def _print(view: StatsView) -> None:
    if not sys.stdout.isatty():
        print(*view.lines, sep="\n")
        if view.rows or not view.has_accounted_usage:
            _print_plain(view.rows)
        return
    from rich.console import Console

    console = Console(highlight=False)
    print(*view.lines, sep="\n")
    if view.rows or not view.has_accounted_usage:
        print()
        console.print(_rich(view.rows, console.width))


def _print_plain(rows: list[UsageRow]) -> None:
    if not rows:
        print(_NO_DATA)
        return
    columns = (Column("METRIC"), *(Column(title, right_aligned=True) for title in _TITLES), Column("OVER TIME"))
    width = _line_width(rows, shutil.get_terminal_size((80, 24)).columns)
    print()
    print_table(columns, ([row.name, *_cells(row), _line(row, width)] for row in rows))


_NO_DATA = "No usage data yet. Nodes and running jobs are sampled every few seconds."


def _rich(rows: list[UsageRow], width: int) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(_NO_DATA)
    line_width = _line_width(rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(_axis(rows[0].series, line_width), no_wrap=True, header_style="bright_black")
    for row in rows:
        colour = _COLOURS.get(row.series["unit"], "")
        table.add_row(row.name, *_cells(row), Text(_line(row, line_width), style=colour))
    return table


def _line_width(rows: list[UsageRow], width: int) -> int:
    """The width that the other columns leave for the sparkline."""
    cells = [(row.name, *_cells(row)) for row in rows]
    titles = ("METRIC", *_TITLES)
    used = sum(max(len(titles[at]), *(len(cell[at]) for cell in cells)) + 2 for at in range(len(titles)))
    return max(8, min(_MAX_SPARKLINE_WIDTH, width - used - 1))


def _line(row: UsageRow, width: int) -> str:
    return sparkline(row.series["mean"], width, row.scale_max)


def _axis(series: "TimeSeries", width: int) -> str:
    """The header of the sparklines: start and end time."""
    length = min(width, len(series["mean"]))
    start, end = format_time(series["start_at"]), "now"
    begun = parse_time(series["start_at"])
    if begun is not None:
        seconds = series["step_seconds"] * len(series["mean"])
        age = time.time() - begun.timestamp() - seconds
        end = "now" if age < series["step_seconds"] else format_duration(seconds) + " later"
    return start + end.rjust(length - len(start)) if length > len(start) + len(end) else start


def _cells(row: UsageRow) -> list[str]:
    mean = row.series["mean"]
    values = row.series["last"], mean_value(mean), max_value(row.series["max"]), row.total
    return [_amount(value, row.series["unit"]) for value in values]


def _amount(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "MiB":
        return format_mib(value)
    if unit == "%":
        return f"{value:.0f}%"
    return f"{value:.1f}".removesuffix(".0") if value < 100 else f"{value:.0f}"


def _follow(client: "Client", job: int | None, node: str | None, span: str, as_json: bool) -> None:
    """Until the job has ended, or Ctrl-C."""
    if as_json or not sys.stdout.isatty():
        for view in _views(client, job, node, span):
            if as_json:
                print_json_line(view.response)
            else:
                _print(view)
                print(flush=True)
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console(highlight=False)
    with Live(console=console, auto_refresh=False) as live:
        for view in _views(client, job, node, span):
            head = [Text.from_ansi(line) for line in view.lines]
            live.update(Group(*head, Text(""), _rich(view.rows, console.width)), refresh=True)


def _views(client: "Client", job: int | None, node: str | None, span: str) -> Iterator[StatsView]:
    while True:
        has_ended = job is not None and client.jobs.get(job).data["state"] in _TERMINAL
        yield _fetch(client, job, node, span)
        if has_ended:
            return
        time.sleep(_REFRESH_SECONDS)


def sparkline(values: Values, width: int, top: float) -> str:
    """At most `width` characters; a value of `top` fills a character, an unknown value is a blank."""
    return "".join(_block(value, top) for value in downsample(values, width))


def downsample(values: Values, width: int) -> list[float | None]:
    """At most `width` values: the means of equal parts if there are more."""
    count = len(values)
    if count <= width:
        return list(values)
    ends = [at * count // width for at in range(width + 1)]
    return [mean_value(values[start:end]) for start, end in pairwise(ends)]


def max_value(values: Values) -> float | None:
    return max((value for value in values if value is not None), default=None)


def mean_value(values: Values) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _block(value: float | None, top: float) -> str:
    if value is None:
        return " "
    fraction = value / top if top > 0 else 0.0
    return SPARKLINE_BLOCKS[min(len(SPARKLINE_BLOCKS) - 1, max(0, round(fraction * (len(SPARKLINE_BLOCKS) - 1))))]
