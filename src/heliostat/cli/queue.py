"""Commands that explain the queue, and say who is entitled to what and has used it."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connect import connect
from heliostat.cli.forecasts import (
    accuracy_in_words,
    forecast_in_words,
    likely_in_words,
    limits_in_words,
)
from heliostat.cli.job_options import job_options
from heliostat.cli.output import Column, JsonFlag, State, print_facts, print_json, print_table, say, styled
from heliostat.cli.units import duration, minute

if TYPE_CHECKING:
    from heliostat.client.queue import Account, Foreseen, ReportLine
    from heliostat.client.shapes import Forecast, Option, Why

_SHOWN_AHEAD = 3
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


def why(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    what_if: Annotated[bool, typer.Option("--what-if", help="Also what would start earlier.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a job waits, and when it will start."""
    told = connect().jobs.why(job, what_if=what_if)
    if as_json:
        print_json(told)
        return
    print(f"Job {told['job_id']} {styled(State(told['state']))}: {told['sentence']}")
    if told["state"] != "pending":
        return
    forecast = told["forecast"]
    print_facts(
        [
            ("position", f"{told['position']} of {told['pending']}" if told["position"] else None),
            ("ahead", _ahead(told)),
            ("starts", forecast_in_words(forecast) if forecast else _unforeseen(told)),
            ("by limits", limits_in_words(forecast) if forecast and _is_ours(forecast) else None),
            ("forecasts", accuracy_in_words(told["accuracy"]) if _is_ours(forecast) else None),
        ]
    )
    if "what_if" in told:
        _print_options(told["what_if"])


@job_options("when")
def when(*, job: dict[str, Any], as_json: JsonFlag = False) -> None:
    """Say when a job would start, before submitting it.

    helio when --gpus 4 --time 8h
    """
    foreseen = connect().queue.when(**job)
    if as_json:
        print_json(foreseen)
    else:
        _print_foreseen(foreseen)


def _is_ours(forecast: "Forecast | None") -> bool:
    return forecast is None or forecast.get("source", "trial runs") == "trial runs"


def _unforeseen(told: "Why") -> str:
    if told.get("not_before"):
        return f"not before {minute(told['not_before'])}"
    if told["blocked_by"] == "parents":
        return "when those it waits for are over"
    if told["blocked_by"] == "nodes":
        return "not with the nodes there are"
    return "not foreseen yet; ask again in a minute"


def _print_foreseen(foreseen: "Foreseen") -> None:
    forecast = foreseen["forecast"]
    if foreseen["starts_now"]:
        print("Submitted now, it would start at once.")
    elif forecast is None:
        print("Nobody can tell: it does not start within the time that can be foreseen.")
    else:
        print(f"Submitted now, it would start {forecast_in_words(forecast)}.")
        facts = [
            ("by limits", limits_in_words(forecast)),
            ("forecasts", accuracy_in_words(foreseen["accuracy"])),
        ]
        print_facts(facts)
    if foreseen["what_if"]:
        _print_options(foreseen["what_if"])


def _print_options(options: "list[Option]") -> None:
    print()
    if not options:
        print("Nothing smaller was found that would start earlier.")
        return
    print("This would start earlier:")
    print_table((Column("REQUEST"), Column("STARTS", shrinks=True)), (_option_row(one) for one in options))


def _option_row(option: "Option") -> list[str]:
    if not option["starts_now"]:
        return [option["words"], likely_in_words(option["forecast"])]
    return [option["words"], "now, by backfill" if "time_limit" in option["change"] else "now"]


def _ahead(told: "Why") -> str | None:
    """The first few."""
    if not told["ahead"] or not told["first_ahead"]:
        return None
    shown = told["first_ahead"][:_SHOWN_AHEAD]
    words = ", ".join(f"{one['id']} ({one['user']} in {one['project']})" for one in shown)
    more = told["ahead"] - len(shown)
    return words + (f" and {more} more" if more > 0 else "")


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
