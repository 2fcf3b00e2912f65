"""`helio why` and `helio when`: why a job waits, and when it will start."""

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
    print_table,
)
from heliostat.cli.value_format import format_time_short

if TYPE_CHECKING:
    from heliostat.client.api_types import Forecast, JobExplanation, RequestVariation
    from heliostat.client.queue import StartEstimate

_MAX_AHEAD = 3


def why(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    what_if: Annotated[
        bool, typer.Option("--what-if", help="Also list smaller requests that would start earlier.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Explain why a job is waiting and when it will start."""
    explanation = connect().jobs.why(job, what_if=what_if)
    if as_json:
        print_json(explanation)
        return
    state = format_cell(StateCell(explanation["state"]))
    print(f"Job {explanation['job_id']} {state}: {explanation['sentence']}")
    if explanation["state"] != "pending":
        return
    forecast, position = explanation["forecast"], explanation["position"]
    own = _is_own_forecast(forecast)
    print_fields(
        [
            ("position", f"{position} of {explanation['pending']}" if position else None),
            ("ahead", _ahead(explanation)),
            ("starts", format_forecast(forecast) if forecast else _start_without_forecast(explanation)),
            ("by limits", format_start_by_time_limits(forecast) if forecast and own else None),
            ("forecasts", format_forecast_accuracy(explanation["accuracy"]) if forecast else None),
        ]
    )
    if "what_if" in explanation:
        _print_options(explanation["what_if"])


@job_options("when")
def when(*, job: dict[str, Any], as_json: JsonFlag = False) -> None:
    """Forecast when a job would start, before submitting it.

    helio when --gpus 4 --time 8h
    """
    estimate = connect().queue.when(**job)
    if as_json:
        print_json(estimate)
    else:
        _print_estimate(estimate)


def _is_own_forecast(forecast: "Forecast | None") -> bool:
    """Whether it comes from Heliostat rather than from Slurm."""
    return forecast is None or forecast.get("source", "simulation") == "simulation"


def _start_without_forecast(explanation: "JobExplanation") -> str:
    if reason := explanation.get("no_forecast_reason"):
        return reason
    if explanation.get("not_before"):
        return f"not before {format_time_short(explanation['not_before'])}"
    if explanation["blocked_by"] == "parents":
        return "when the jobs that it waits for have ended"
    if explanation["blocked_by"] == "nodes":
        return "cannot start until a node is back"
    return "no forecast: the job is new (try again in a minute), or its start is too far away"


def _print_estimate(estimate: "StartEstimate") -> None:
    forecast = estimate["forecast"]
    if estimate["starts_now"]:
        print("If submitted now, the job would start immediately.")
    elif reason := estimate.get("no_forecast_reason"):
        print(f"If submitted now, the job would start {reason}.")
    elif forecast is None:
        print("No forecast: the start is too far away.")
    else:
        print(f"If submitted now, the job would start {format_forecast(forecast)}.")
        facts = [
            ("by limits", format_start_by_time_limits(forecast)),
            ("forecasts", format_forecast_accuracy(estimate["accuracy"])),
        ]
        print_fields(facts)
    if estimate["what_if"]:
        _print_options(estimate["what_if"])


def _print_options(options: "list[RequestVariation]") -> None:
    print()
    if not options:
        print("No smaller request would start earlier.")
        return
    print("These requests would start earlier:")
    rows = (_option_row(option) for option in options)
    print_table((Column("REQUEST"), Column("STARTS", shrinkable=True)), rows)


def _option_row(option: "RequestVariation") -> list[str]:
    if not option["starts_now"]:
        return [option["description"], format_likely_start(option["forecast"])]
    return [option["description"], "now, by backfill" if "time_limit" in option["change"] else "now"]


def _ahead(explanation: "JobExplanation") -> str | None:
    """The first few jobs ahead, and the number of others."""
    if not explanation["ahead"] or not explanation["first_ahead"]:
        return None
    shown = explanation["first_ahead"][:_MAX_AHEAD]
    text = ", ".join(f"{job['id']} ({job['user']} in {job['project']})" for job in shown)
    more = explanation["ahead"] - len(shown)
    return text + (f" and {more} more" if more > 0 else "")
