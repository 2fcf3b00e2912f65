"""Announcements from the admins."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_table, sanitize_text
from heliostat.cli.value_format import format_time
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.notifications import Announcement

announcement = command_group("Announcements from the admins, for everybody.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("TEXT", shrinkable=True),
    Column("BY", optional=True),
    Column("SINCE", optional=True),
    Column("UNTIL"),
)


@announcement.callback(invoke_without_command=True)
def list_when_no_subcommand(context: typer.Context) -> None:
    """`helio announcement` alone lists them."""
    if context.invoked_subcommand is None:
        list_announcements()


@announcement.command("list")
def list_announcements(
    past: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List what everybody should read, newest first."""
    found = connect().announcements.list(past=past)
    if as_json:
        print_json(found)
        return
    if not found:
        print("No announcements.")
        return
    print_table(_COLUMNS, (_row(one) for one in found))


@announcement.command()
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What everybody should read.")],
    until: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="'2026-12-05 10:00', in your time zone; else until it is removed."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Tell everybody something. Admins only."""
    made = connect().announcements.add(text, None if until is None else _time(until))
    if as_json:
        print_json(made)
        return
    end = (
        f"until {format_time(made['ends_at'])}"
        if made["ends_at"]
        else f"until you remove it: helio announcement remove {made['id']}"
    )
    print(f"Announcement {made['id']} is shown to everybody {end}.")


@announcement.command()
def remove(announcement_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Remove an announcement. Admins only."""
    connect().announcements.remove(announcement_id)
    if as_json:
        print_json({"id": announcement_id, "removed": True})
    else:
        print(f"Announcement {announcement_id} is removed.")


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        hint = "Write '2026-12-05 10:00', or ISO 8601: 2026-12-05T10:00:00+01:00."
        raise Invalid(f"--until: {sanitize_text(text)!r} is not a time.", hint) from None


def _row(one: "Announcement") -> list[str]:
    until = format_time(one["ends_at"]) if one["ends_at"] else "-"
    return [str(one["id"]), " ".join(one["text"].split()), one["author"], format_time(one["created_at"]), until]
