"""`helio stats`: what a job, a node or the cluster used, over time."""

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_tables import format_accounted_usage
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
    from heliostat.client.stats import JobStats, TimeSeries

_FINAL = {"completed", "failed", "cancelled", "timed_out", "lost"}
_EVERY_SECONDS = 5.0
_WIDEST = 60  # characters of a line of blocks
_TITLES = ("NOW", "MEAN", "PEAK", "OF")
_COLOURS = {"%": "green", "cores": "cyan", "MiB": "magenta", "GPUs": "yellow", "jobs": "blue"}
_CLUSTER = {
    "gpus_allocated": ("GPUs given out", "gpus"),
    "gpu_utilisation": ("GPU load", None),
    "cpus_allocated": ("cpus given out", "cpus"),
    "cpus_used": ("cpus busy", "cpus"),
    "memory_held": ("memory given out", "memory"),
    "memory_used": ("memory in use", "memory"),
    "running": ("jobs running", None),
    "pending": ("jobs waiting", None),
}
"""Name and of what it is a part; the series that only say how much there is are not rows of their own."""
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
    total: float | None  # what there is, or was asked for
    scale_max: float  # of the line of blocks


class StatsView(NamedTuple):
    lines: tuple[str, ...]  # above the rows
    rows: list[UsageRow]
    response: Any
    has_accounted_usage: bool = False  # something is known, though nobody has looked


def stats(
    job: Annotated[int | None, typer.Argument(metavar="[JOB]", show_default=False)] = None,
    node: Annotated[str | None, typer.Option(metavar="NAME", help="Of this machine.")] = None,
    span: Annotated[TimeSpan, typer.Option(help="How far to look back.")] = TimeSpan.DAY,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Again and again.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show what a job, a machine or the cluster used over time.

    Of a job all of its time; without a job or --node, the whole cluster.
    """
    if job is not None and node is not None:
        raise typer.BadParameter("Name a job or --node, not both.")
    client = connect()
    if follow:
        _follow(client, job, node, span.value, as_json)
        return
    view = _look(client, job, node, span.value)
    if as_json:
        print_json(view.response)
    else:
        _print(view)


def _look(client: "Client", job: int | None, node: str | None, span: str) -> StatsView:
    if job is not None:
        return _of_job(client.jobs.get(job).data, client.stats.job(job))
    if node is not None:
        found = client.stats.node(node, span)
        machine = client.nodes.get(node)
        wholes: dict[str, float] = {"cpu": machine["cpus"], "memory": machine["memory_mib"]}
        wholes |= {f"gpu{one['index']}_memory": one["memory_mib"] for one in machine["devices"]}
        return StatsView((f"Node {node}, the last {span}",), list(_usage_rows(found["series"], wholes)), found)
    total = client.stats.cluster(span)
    return StatsView((f"The cluster, the last {span}",), list(_cluster_rows(total["series"])), total)


def _of_job(job: "JobData", found: "JobStats") -> StatsView:
    ran = format_duration(seconds_between(job["started_at"], job["ended_at"])) if job["started_at"] else None
    words = [
        f"Job {job['id']}",
        sanitize_text(job["name"] or ""),
        format_cell(StateCell(job["state"])),
        f"for {ran}" if ran else "",
    ]
    where = f"on {job['node']}" if job["node"] else ""
    asked = found["asked"]
    wholes: dict[str, float] = {"cpu": asked["cpus"], "memory": asked["memory_mib"]}
    wholes |= {f"gpu{rank}_memory": mib for rank, mib in enumerate(found["device_memory_mib"]) if mib is not None}
    lines = [" ".join(filter(None, [*words, where])), _verdict(found)]
    if used := format_accounted_usage(found.get("accounting_usage")):
        lines.append(f"Counted in all: {used}.")
    return StatsView(tuple(lines), list(_usage_rows(found["series"], wholes)), found, bool(used))


def _verdict(found: "JobStats") -> str:
    text = found["verdict"]["text"]
    sentence = text[:1].upper() + text[1:] + "."
    if not found["verdict"]["judged"] or not sys.stdout.isatty():
        return sentence
    wasteful = found["verdict"]["wasteful"]
    return typer.style(f"{'!' if wasteful else '✓'} {sentence}", fg="yellow" if wasteful else "bright_green")


def _usage_rows(series: "Sequence[TimeSeries]", wholes: dict[str, float]) -> Iterator[UsageRow]:
    for one in series:
        if max_value(one["max"]) is not None:
            yield _row(_title(one["name"]), one, wholes.get(one["name"]))


def _cluster_rows(series: "Sequence[TimeSeries]") -> Iterator[UsageRow]:
    by_name = {one["name"]: one for one in series}
    for name, (title, whole) in _CLUSTER.items():
        if name in by_name and max_value(by_name[name]["max"]) is not None:
            yield _row(title, by_name[name], by_name[whole]["last"] if whole in by_name else None)


def _row(title: str, series: "TimeSeries", whole: float | None) -> UsageRow:
    top = 100.0 if series["unit"] == "%" else max(whole or 0, max_value(series["mean"]) or 0) or 1.0
    return UsageRow(title, series, whole, top)


def _title(name: str) -> str:
    """`GPU 0 memory` for gpu0_memory."""
    device, _, what = name.partition("_")
    if not what:
        return {"cpu": "cpus busy"}.get(name, name)
    return f"GPU {device.removeprefix('gpu')} {'load' if what == 'utilisation' else what}"


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
        print(_NOTHING)
        return
    columns = (Column("WHAT"), *(Column(title, right_aligned=True) for title in _TITLES), Column("OVER TIME"))
    width = _line_width(rows, shutil.get_terminal_size((80, 24)).columns)
    print()
    print_table(columns, ([row.name, *_cells(row), _line(row, width)] for row in rows))


_NOTHING = "Nothing is known yet: machines and running jobs are looked at every few seconds."


def _rich(rows: list[UsageRow], width: int) -> "RenderableType":
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return Text(_NOTHING)
    room = _line_width(rows, width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("")
    for title in _TITLES:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(_axis(rows[0].series, room), no_wrap=True, header_style="bright_black")
    for row in rows:
        colour = _COLOURS.get(row.series["unit"], "")
        table.add_row(row.name, *_cells(row), Text(_line(row, room), style=colour))
    return table


def _line_width(rows: list[UsageRow], width: int) -> int:
    """What is left beside the other columns."""
    cells = [(row.name, *_cells(row)) for row in rows]
    titles = ("WHAT", *_TITLES)
    beside = sum(max(len(titles[at]), *(len(cell[at]) for cell in cells)) + 2 for at in range(len(titles)))
    return max(8, min(_WIDEST, width - beside - 1))


def _line(row: UsageRow, width: int) -> str:
    return sparkline(row.series["mean"], width, row.scale_max)


def _axis(series: "TimeSeries", width: int) -> str:
    """From when to when, above the lines."""
    length = min(width, len(series["mean"]))
    start, end = format_time(series["start_at"]), "now"
    begun = parse_time(series["start_at"])
    if begun is not None:
        seconds = series["step_seconds"] * len(series["mean"])
        over = time.time() - begun.timestamp() - seconds
        end = "now" if over < series["step_seconds"] else format_duration(seconds) + " later"
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
    """Until the job is over, or Ctrl-C."""
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
        is_over = job is not None and client.jobs.get(job).data["state"] in _FINAL
        yield _look(client, job, node, span)
        if is_over:
            return
        time.sleep(_EVERY_SECONDS)


def sparkline(values: Values, width: int, top: float) -> str:
    """At most so many characters; `top` fills a character. What is not known is a blank."""
    return "".join(_block(value, top) for value in downsample(values, width))


def downsample(values: Values, width: int) -> list[float | None]:
    """The means of equal parts; as they are when there is room."""
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
    part = value / top if top > 0 else 0.0
    return SPARKLINE_BLOCKS[min(len(SPARKLINE_BLOCKS) - 1, max(0, round(part * (len(SPARKLINE_BLOCKS) - 1))))]
