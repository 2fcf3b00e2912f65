"""Reservations: nodes set aside for a project, or for maintenance."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_table
from heliostat.cli.value_format import parse_time
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.nodes import Reservation

reservation = command_group("Nodes set aside for a course, a deadline, or maintenance.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME")]
_COLUMNS = (
    Column("NAME", shrinkable=True),
    Column("FOR", shrinkable=True),
    Column("NODES", shrinkable=True),
    Column("GPUS"),
    Column("WHEN"),
    Column("WEEKS", right_aligned=True, optional=True),
    Column("REASON", shrinkable=True, optional=True),
)


@reservation.command()
def create(
    name: NameArgument,
    nodes: Annotated[str, typer.Option(metavar="NAMES", help="Which machines: n01,n02.")],
    starts_at: Annotated[
        str, typer.Option("--from", metavar="TIME", help="'2026-12-03 09:00', in your time zone unless it says.")
    ],
    ends_at: Annotated[str, typer.Option("--to", metavar="TIME", help="As --from.")],
    project: Annotated[str | None, typer.Option(help="For whom; without it, maintenance: for nobody.")] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="So many GPUs of each; else all of it.")
    ] = None,
    weeks: Annotated[int, typer.Option(metavar="N", help="So many weeks in a row.")] = 1,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="What people will read.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Set machines aside for a time: for a project, or for maintenance."""
    made = connect().reservations.create(
        name,
        [node.strip() for node in nodes.split(",") if node.strip()],
        _time("--from", starts_at),
        _time("--to", ends_at),
        project=project,
        gpus_per_node=gpus_per_node,
        weeks=weeks,
        reason=reason,
    )
    if as_json:
        print_json(made)
    else:
        _print_one(made)


@reservation.command("list")
def list_reservations(
    past: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List what is set aside, by its next time."""
    found = connect().reservations.list(past=past)
    if as_json:
        print_json(found)
        return
    if not found:
        print("Nothing is set aside.")
        return
    print_table(_COLUMNS, (_row(one) for one in found))


@reservation.command()
def delete(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a reservation; its machines are for everybody again."""
    connect().reservations.delete(name)
    if as_json:
        print_json({"name": name, "deleted": True})
    else:
        print(f"Reservation {name} is deleted.")


def _time(option: str, text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        hint = "Write '2026-12-03 09:00', or ISO 8601: 2026-12-03T09:00:00+01:00."
        raise Invalid(f"{option}: {text!r} is not a time.", hint) from None


def _row(one: "Reservation") -> list[str]:
    times = one["next"] or {"starts_at": one["starts_at"], "ends_at": one["ends_at"]}
    return [
        one["name"],
        one["project"] or "maintenance",
        ",".join(one["nodes"]),
        "all" if one["gpus_per_node"] is None else f"{one['gpus_per_node']} each",
        _span(times["starts_at"], times["ends_at"]) + (", over" if not one["next"] else ""),
        str(one["weeks"]),
        one["reason"],
    ]


def _print_one(one: "Reservation") -> None:
    weeks = f", {one['weeks']} weeks in a row" if one["weeks"] > 1 else ""
    print_fields(
        [
            ("reservation", one["name"]),
            ("for", one["project"] or "maintenance: nobody"),
            ("nodes", ", ".join(one["nodes"])),
            ("GPUs", "all" if one["gpus_per_node"] is None else f"{one['gpus_per_node']} of each node"),
            ("time", f"{_local(one['starts_at'])} to {_local(one['ends_at'])}{weeks}"),
            ("reason", one["reason"] or None),
        ]
    )


def _span(start: str, end: str) -> str:
    """`2026-12-03 09:00-17:00`, `2026-12-03 09:00 to 12-04 17:00`."""
    begin, over = _local(start), _local(end)
    if begin[:10] == over[:10]:
        return f"{begin}-{over[11:]}"
    return f"{begin} to {over[5:] if begin[:4] == over[:4] else over}"


def _local(text: str) -> str:
    """With its date, also today's."""
    at = parse_time(text)
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M")
