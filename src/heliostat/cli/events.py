"""`helio events`: the events of jobs."""

from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    StateCell,
    format_cell,
    print_json,
    print_json_line,
    print_message,
    print_table,
)
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client.api_types import JobEventData


def events(
    job: Annotated[int | None, typer.Argument(metavar="[JOB]", show_default=False)] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new events as they happen.")] = False,
    after: Annotated[int | None, typer.Option(help="Only events after this event id.", min=0)] = None,
    limit: Annotated[int, typer.Option(help="Maximum number of events.", min=1)] = 200,
    as_json: JsonFlag = False,
) -> None:
    """Show the events of jobs.

    Without a job or --after, the newest events. With --follow, new events from now on, or from --after on.
    """
    client = connect()
    if follow:
        start = after if after is not None or job is None else 0
        for event in client.events.follow(job, after=start):
            _print_event(event, as_json)
        return
    start = -limit if after is None and job is None else after
    listed = list(client.events.list(job, after=start, limit=limit))
    if as_json:
        print_json(listed)
    elif not listed:
        print("No events yet. Submit a job: helio run -- hostname")
    else:
        _print_events(listed)
        if len(listed) == limit and after is not None:
            print_message(f"There may be more events: helio events --after {listed[-1]['id']}")


def _print_event(event: "JobEventData", as_json: bool) -> None:
    if as_json:
        print_json_line(event)
        return
    state = format_cell(StateCell(event["state"]))
    print(
        f"{format_time(event['at'])}  job {event['job_id']}  {state}  {event['detail'] or ''}".rstrip(), flush=True
    )


def _print_events(listed: "list[JobEventData]") -> None:
    columns = (
        Column("EVENT", right_aligned=True),
        Column("AT"),
        Column("JOB", right_aligned=True),
        Column("KIND"),
        Column("STATE"),
        Column("DETAIL", shrinkable=True),
    )
    rows = [
        [
            str(event["id"]),
            format_time(event["at"]),
            str(event["job_id"]),
            event["kind"],
            StateCell(event["state"]),
            event["detail"] or "",
        ]
        for event in listed
    ]
    print_table(columns, rows)
