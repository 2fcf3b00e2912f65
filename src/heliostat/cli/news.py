"""News from the admins."""

from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import Column, JsonFlag, clean, print_json, print_table
from heliostat.cli.units import clock
from heliostat.errors import Invalid

if TYPE_CHECKING:
    from heliostat.client.notifications import Announcement

news = noun("News from the admins, for everybody.")
_COLUMNS = (
    Column("ID", right=True),
    Column("TEXT", shrinks=True),
    Column("BY", optional=True),
    Column("SINCE", optional=True),
    Column("UNTIL"),
)


@news.callback(invoke_without_command=True)
def just_news(context: typer.Context) -> None:
    """`helio news` alone lists them."""
    if context.invoked_subcommand is None:
        list_news()


@news.command("list")
def list_news(
    past: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List what everybody should read, newest first."""
    found = connect().announcements.list(past=past)
    if as_json:
        print_json(found)
        return
    if not found:
        print("No news.")
        return
    print_table(_COLUMNS, (_row(one) for one in found))


@news.command()
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
        f"until {clock(made['ends_at'])}"
        if made["ends_at"]
        else f"until you remove it: helio news remove {made['id']}"
    )
    print(f"News {made['id']} is shown to everybody {end}.")


@news.command()
def remove(news_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Take news away. Admins only."""
    connect().announcements.remove(news_id)
    if as_json:
        print_json({"id": news_id, "removed": True})
    else:
        print(f"News {news_id} is removed.")


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        hint = "Write '2026-12-05 10:00', or ISO 8601: 2026-12-05T10:00:00+01:00."
        raise Invalid(f"--until: {clean(text)!r} is not a time.", hint) from None


def _row(one: "Announcement") -> list[str]:
    until = clock(one["ends_at"]) if one["ends_at"] else "-"
    return [str(one["id"]), " ".join(one["text"].split()), one["author"], clock(one["created_at"]), until]
