"""`helio why` and `helio when`: the queue explained."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connect import connect
from heliostat.cli.forecast_words import (
    accuracy_in_words,
    forecast_in_words,
    likely_in_words,
    limits_in_words,
)
from heliostat.cli.job_options import job_options
from heliostat.cli.output import Column, JsonFlag, State, print_facts, print_json, print_table, styled
from heliostat.cli.units import minute

if TYPE_CHECKING:
    from heliostat.client.shapes import Forecast, Foreseen, Option, Why

_SHOWN_AHEAD = 3


def why(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    what_if: Annotated[bool, typer.Option("--what-if", help="Also what would start earlier.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Say why a job waits, and when it will start."""
    told = connect().why(job, what_if=what_if)
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
    foreseen = connect().when(**job)
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
