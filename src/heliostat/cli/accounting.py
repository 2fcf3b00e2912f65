"""`helio share` and `helio report`: who is entitled to what, and who used what."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connect import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_table, say
from heliostat.cli.units import duration

if TYPE_CHECKING:
    from heliostat.client.queue import Account, ReportLine

_SHARE_COLUMNS = (
    Column("DEPARTMENT > PROJECT > USER", shrinks=True),
    Column("SHARE", right=True),
    Column("PART", right=True),
    Column("GPU-HOURS", right=True),
    Column("OF SHARE", right=True),
    Column("POINTS", right=True),
)
_REPORT_COLUMNS = (
    Column("JOBS", right=True),
    Column("GPU-H", right=True),
    Column("OF ALL", right=True),
    Column("CPU-H", right=True),
    Column("WASTED", right=True),
    Column("MEAN WAIT", right=True),
    Column("MEDIAN", right=True),
)
_TIMES = "\N{MULTIPLICATION SIGN}"


def share(as_json: JsonFlag = False) -> None:
    """Show who is entitled to what, and has used how much of it.

    PART is theirs by right while all others want theirs too; OF SHARE is what they have had lately, in shares;
    POINTS are what that costs their jobs in the queue.
    """
    answer = connect().queue.share()
    tree = answer["items"]
    if as_json:
        print_json(tree)
        return
    print_table(_SHARE_COLUMNS, (_share_row(one, depth) for one, depth in _walked(tree)))
    if answer.get("counted_by") == "slurm":
        say("Counted by Slurm, with jobs of plain sbatch; it has no points.")


def report(
    month: Annotated[str | None, typer.Option(help="2026-11; the present one unless said.")] = None,
    by: Annotated[str, typer.Option(help="department, project or user.")] = "project",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Show who used what in a month.

    Everybody for an admin, your projects for a manager, else yourself.
    """
    client = connect()
    if as_csv:
        sys.stdout.write(client.queue.report_csv(month, by).replace("\r\n", "\n"))
        return
    lines = client.queue.report(month, by)
    if as_json:
        print_json(lines)
        return
    if not lines:
        print("Nothing ran in that month.")
        return
    print_table((Column(by.upper(), shrinks=True), *_REPORT_COLUMNS), (_report_row(line) for line in lines))
    say("WASTED: GPU-hours since the last checkpoint of attempts that failed, timed out, were lost or preempted.")


def _walked(tree: "list[Account]", depth: int = 0) -> "Iterator[tuple[Account, int]]":
    for one in tree:
        yield one, depth
        yield from _walked(one["below"], depth + 1)


def _share_row(one: "Account", depth: int) -> list[str]:
    entitled = one["entitled"]
    name = "  " * depth + one["name"]
    if entitled is None:
        return [name, str(one["share"]), "-", "-", "-", "-"]
    return [
        name,
        str(one["share"]),
        f"{entitled:.1%}",
        f"{one['usage_gpu_hours']:.1f}",
        f"{one['times_share']:.2f}{_TIMES}",
        f"-{one['points_lost']:.1f}" if one["points_lost"] >= 0.05 else "0",
    ]


def _report_row(line: "ReportLine") -> list[str]:
    return [
        line["name"],
        str(line["jobs"]),
        f"{line['gpu_hours']:.1f}",
        f"{line['part_of_all']:.0%}",
        f"{line['cpu_hours']:.1f}",
        f"{line['wasted_gpu_hours']:.1f}",
        duration(line["mean_wait_seconds"]),
        duration(line["median_wait_seconds"]),
    ]
