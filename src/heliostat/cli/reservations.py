"""`helio reservation`: nodes reserved for a project or for maintenance."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import (
    Column,
    JsonFlag,
    format_count,
    print_fields,
    print_json,
    print_message,
    print_table,
)
from heliostat.cli.value_format import parse_time
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.reservations import CreatedReservation, Reservation

reservation = command_group("Nodes reserved for a project or for maintenance.")
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
    nodes: Annotated[str, typer.Option(metavar="NAMES", help="Nodes to reserve: n01,n02.")],
    starts_at: Annotated[
        str,
        typer.Option("--from", metavar="TIME", help="Start: '2026-12-03 09:00', local time if it has no zone."),
    ],
    ends_at: Annotated[str, typer.Option("--to", metavar="TIME", help="End, in the same format as --from.")],
    project: Annotated[
        str | None, typer.Option(help="Project whose jobs may use the nodes. Default: none, for maintenance.")
    ] = None,
    gpus_per_node: Annotated[
        int | None, typer.Option(metavar="N", help="GPUs to reserve on each node. Default: the whole node.")
    ] = None,
    weeks: Annotated[int, typer.Option(metavar="N", help="Repeat weekly, this many weeks in total.")] = 1,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason that users see.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Reserve nodes for a project or for maintenance."""
    created = connect().reservations.create(
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
        print_json(created)
    else:
        _print_one(created)
        _print_running_jobs(created)


@reservation.command("list")
def list_reservations(
    past: Annotated[bool, typer.Option("--all", "-a", help="Include reservations that have ended.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List reservations by their next start."""
    reservations = connect().reservations.list(past=past)
    if as_json:
        print_json(reservations)
        return
    if not reservations:
        print("No reservations.")
        return
    print_table(_COLUMNS, (_row(data) for data in reservations))


@reservation.command()
def delete(name: NameArgument, as_json: JsonFlag = False) -> None:
    """Delete a reservation; all jobs may use its nodes again."""
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


def _row(data: "Reservation") -> list[str]:
    times = data["next"] or {"starts_at": data["starts_at"], "ends_at": data["ends_at"]}
    return [
        data["name"],
        data["project"] or "maintenance",
        ",".join(data["nodes"]),
        "all" if data["gpus_per_node"] is None else f"{data['gpus_per_node']} each",
        _span(times["starts_at"], times["ends_at"]) + (", ended" if not data["next"] else ""),
        str(data["weeks"]),
        data["reason"],
    ]


def _print_one(data: "Reservation") -> None:
    weeks = f", weekly for {data['weeks']} weeks" if data["weeks"] > 1 else ""
    print_fields(
        [
            ("reservation", data["name"]),
            ("for", data["project"] or "maintenance (no jobs)"),
            ("nodes", ", ".join(data["nodes"])),
            ("GPUs", "all" if data["gpus_per_node"] is None else f"{data['gpus_per_node']} on each node"),
            ("time", f"{_local(data['starts_at'])} to {_local(data['ends_at'])}{weeks}"),
            ("reason", data["reason"] or None),
        ]
    )


def _print_running_jobs(created: "CreatedReservation") -> None:
    jobs = created["running_jobs"]
    if not jobs:
        return
    print_message(f"{format_count(len(jobs), 'running job')} may still run when it begins; it stops none:")
    for job in jobs:
        end = f"until {_local(job['ends_at'])} at the latest" if job["ends_at"] else "no time limit"
        print_message(f"  job {job['id']} of {job['user']} on {', '.join(job['nodes'])}, {end}")


def _span(start: str, end: str) -> str:
    """`2026-12-03 09:00-17:00`, `2026-12-03 09:00 to 12-04 17:00`."""
    first, last = _local(start), _local(end)
    if first[:10] == last[:10]:
        return f"{first}-{last[11:]}"
    return f"{first} to {last[5:] if first[:4] == last[:4] else last}"


def _local(text: str) -> str:
    """Local date and time; the date also for today."""
    at = parse_time(text)
    return "-" if at is None else at.astimezone().strftime("%Y-%m-%d %H:%M")
