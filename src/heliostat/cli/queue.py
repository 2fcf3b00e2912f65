"""Commands that explain the queue, and say who is entitled to what and has used it."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.forecast_format import (
    format_forecast,
    format_forecast_accuracy,
    format_likely_start,
    format_start_by_time_limits,
)
from heliostat.cli.job_options import job_options
from heliostat.cli.output import (
    Column,
    JsonFlag,
    StateCell,
    format_cell,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_duration, format_time_short

if TYPE_CHECKING:
    from heliostat.client.api_types import Forecast, JobExplanation, RequestVariation
    from heliostat.client.queue import ShareEntry, StartEstimate, UsageReportRow

_SHOWN_AHEAD = 3
_SHARE_COLUMNS = (
    Column("DEPARTMENT > PROJECT > USER", shrinkable=True),
    Column("SHARE", right_aligned=True),
    Column("PART", right_aligned=True),
    Column("GPU-HOURS", right_aligned=True),
    Column("OF SHARE", right_aligned=True),
    Column("POINTS", right_aligned=True),
)
_REPORT_COLUMNS = (
    Column("JOBS", right_aligned=True),
    Column("GPU-H", right_aligned=True),
    Column("OF ALL", right_aligned=True),
    Column("CPU-H", right_aligned=True),
    Column("WASTED", right_aligned=True),
    Column("MEAN WAIT", right_aligned=True),
    Column("MEDIAN", right_aligned=True),
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
    print(f"Job {told['job_id']} {format_cell(StateCell(told['state']))}: {told['sentence']}")
    if told["state"] != "pending":
        return
    forecast = told["forecast"]
    print_fields(
        [
            ("position", f"{told['position']} of {told['pending']}" if told["position"] else None),
            ("ahead", _ahead(told)),
            ("starts", format_forecast(forecast) if forecast else _unforeseen(told)),
            ("by limits", format_start_by_time_limits(forecast) if forecast and _is_ours(forecast) else None),
            ("forecasts", format_forecast_accuracy(told["accuracy"]) if _is_ours(forecast) else None),
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


def _unforeseen(told: "JobExplanation") -> str:
    if told.get("not_before"):
        return f"not before {format_time_short(told['not_before'])}"
    if told["blocked_by"] == "parents":
        return "when those it waits for are over"
    if told["blocked_by"] == "nodes":
        return "not with the nodes there are"
    return "not foreseen yet; ask again in a minute"


def _print_foreseen(foreseen: "StartEstimate") -> None:
    forecast = foreseen["forecast"]
    if foreseen["starts_now"]:
        print("Submitted now, it would start at once.")
    elif forecast is None:
        print("Nobody can tell: it does not start within the time that can be foreseen.")
    else:
        print(f"Submitted now, it would start {format_forecast(forecast)}.")
        facts = [
            ("by limits", format_start_by_time_limits(forecast)),
            ("forecasts", format_forecast_accuracy(foreseen["accuracy"])),
        ]
        print_fields(facts)
    if foreseen["what_if"]:
        _print_options(foreseen["what_if"])


def _print_options(options: "list[RequestVariation]") -> None:
    print()
    if not options:
        print("Nothing smaller was found that would start earlier.")
        return
    print("This would start earlier:")
    print_table((Column("REQUEST"), Column("STARTS", shrinkable=True)), (_option_row(one) for one in options))


def _option_row(option: "RequestVariation") -> list[str]:
    if not option["starts_now"]:
        return [option["words"], format_likely_start(option["forecast"])]
    return [option["words"], "now, by backfill" if "time_limit" in option["change"] else "now"]


def _ahead(told: "JobExplanation") -> str | None:
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
    if (counts := answer.get("usage_source", "heliostat")) != "heliostat":
        print_message(
            f"Counted by {counts.capitalize()}, with jobs that came without Heliostat; it has no points."
        )


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
    print_table((Column(by.upper(), shrinkable=True), *_REPORT_COLUMNS), (_report_row(line) for line in lines))
    print_message(
        "WASTED: GPU-hours since the last checkpoint of attempts that failed, timed out, were lost or preempted."
    )


def _walked(tree: "list[ShareEntry]", depth: int = 0) -> "Iterator[tuple[ShareEntry, int]]":
    for one in tree:
        yield one, depth
        yield from _walked(one["below"], depth + 1)


def _share_row(one: "ShareEntry", depth: int) -> list[str]:
    entitled = one["entitled"]
    name = "  " * depth + one["name"]
    if entitled is None:
        return [name, str(one["share"]), "-", "-", "-", "-"]
    return [
        name,
        str(one["share"]),
        f"{entitled:.1%}",
        f"{one['usage_gpu_hours']:.1f}",
        f"{one['usage_ratio']:.2f}{_TIMES}",
        f"-{one['priority_penalty']:.1f}" if one["priority_penalty"] >= 0.05 else "0",
    ]


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
