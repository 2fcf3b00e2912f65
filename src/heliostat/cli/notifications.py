"""`helio notification`: where to be told what happens to jobs."""

import getpass
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_message, print_table
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client.notifications import Notification

notification = command_group("Be told what happens to jobs: by e-mail, in a chat, or by a webhook.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("BY"),
    Column("TO", shrinkable=True),
    Column("WHEN"),
    Column("OF", optional=True),
    Column("LAST SENT", optional=True),
    Column("PROBLEM", shrinkable=True),
)


@notification.callback(invoke_without_command=True)
def list_when_no_subcommand(context: typer.Context) -> None:
    """`helio notification` alone lists them."""
    if context.invoked_subcommand is None:
        list_notifications()


@notification.command("list")
def list_notifications(
    all_users: Annotated[bool, typer.Option("--all", "-a", help="Of all people; admins only.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """List where you are told what."""
    found = connect().notifications.list(all_users=all_users)
    if as_json:
        print_json(found)
    elif not found:
        print("You are told nothing. Begin with: helio notification add email you@example.org")
    else:
        print_table(_COLUMNS, (_row(one) for one in found))


@notification.command()
def add(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="email, chat or webhook.")],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="An e-mail address or URL; -: asked for, or read from a pipe.")
    ] = "-",
    on: Annotated[
        list[str] | None, typer.Option(help="started,ended,failed,late,ends_soon. As usual: ended.")
    ] = None,
    requested_only: Annotated[
        bool, typer.Option("--requested-only", help="Only of jobs run with --notify.")
    ] = False,
    project: Annotated[str | None, typer.Option(help="Of all its jobs; for its managers.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Be told what happens to your jobs.

    helio notification add email ada@example.org --on failed,late
    """
    if on and requested_only:
        raise typer.BadParameter("Say one of --on and --requested-only.", param_hint="--requested-only")
    words = [word.strip() for text in on or [] for word in text.split(",") if word.strip()]
    where = _asked_for(channel) if address == "-" else address
    made = connect().notifications.add(channel, where, [] if requested_only else words or None, project)
    if as_json:
        print_json(made)
        return
    print(
        f"Notification {made['id']}: {made['channel']} to {made['address']}. Try it: helio notification test {made['id']}"
    )
    if made.get("secret"):
        print_message("Its signing secret, shown this once:")
        print(made["secret"])


@notification.command("test")
def send_test_notification(
    notification_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False
) -> None:
    """Send a test now, and say whether it arrived."""
    problem = connect().notifications.test(notification_id)
    if as_json:
        print_json({"id": notification_id, "arrived": problem is None, "problem": problem})
    elif problem is None:
        print(f"The test of notification {notification_id} has arrived.")
    else:
        print_message(f"The test of notification {notification_id} has not arrived: {problem}.")
    if problem is not None:
        raise typer.Exit(1)


@notification.command()
def remove(notification_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Be told no longer."""
    connect().notifications.remove(notification_id)
    if as_json:
        print_json({"id": notification_id, "removed": True})
    else:
        print(f"Notification {notification_id} is removed.")


def _asked_for(channel: str) -> str:
    """URLs of chats are secrets, and others on this machine can read command lines."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return getpass.getpass(f"Address of the {channel}: ").strip()


def _row(one: "Notification") -> list[str]:
    return [
        str(one["id"]),
        one["channel"],
        one["address"],
        ",".join(one["triggers"]) or "asked for",
        f"project {one['project']}" if one["project"] else one["user"],
        format_time(one["sent_at"]) if one["sent_at"] else "-",
        one["problem"] or "-",
    ]
