"""`helio announcement`: messages from the admins to all users."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_table, sanitize_text
from heliostat.cli.value_format import format_time
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.announcements import Announcement

announcement = command_group("Messages from the admins to all users.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("TEXT", shrinkable=True),
    Column("BY", optional=True),
    Column("SINCE", optional=True),
    Column("UNTIL"),
)


@announcement.callback(invoke_without_command=True)
def list_when_no_subcommand(context: typer.Context) -> None:
    """`helio announcement` without a subcommand lists the announcements."""
    if context.invoked_subcommand is None:
        list_announcements()


@announcement.command("list")
def list_announcements(
    past: Annotated[bool, typer.Option("--all", "-a", help="Include expired announcements; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List announcements, newest first."""
    items = connect().announcements.list(past=past)
    if as_json:
        print_json(items)
        return
    if not items:
        print("No announcements.")
        return
    print_table(_COLUMNS, (_row(item) for item in items))


@announcement.command()
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="Text of the announcement.")],
    until: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Show it until '2026-12-05 10:00', your local time. Default: until it is removed."
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show an announcement to all users. Admins only."""
    created = connect().announcements.add(text, None if until is None else _time(until))
    if as_json:
        print_json(created)
        return
    end = (
        f"until {format_time(created['ends_at'])}"
        if created["ends_at"]
        else f"until you remove it: helio announcement remove {created['id']}"
    )
    print(f"Announcement {created['id']} is shown to all users {end}.")


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


def _row(item: "Announcement") -> list[str]:
    until = format_time(item["ends_at"]) if item["ends_at"] else "-"
    return [
        str(item["id"]),
        " ".join(item["text"].split()),
        item["author"],
        format_time(item["created_at"]),
        until,
    ]
