"""`helio notification`: messages about jobs by e-mail, chat or webhook."""

import getpass
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_message, print_table
from heliostat.cli.value_format import format_time

if TYPE_CHECKING:
    from heliostat.client.notifications import Notification

notification = command_group("Messages about your jobs by e-mail, chat or webhook.")
_COLUMNS = (
    Column("ID", right_aligned=True),
    Column("CHANNEL"),
    Column("ADDRESS", shrinkable=True),
    Column("TRIGGERS"),
    Column("JOBS OF", optional=True),
    Column("LAST SENT", optional=True),
    Column("PROBLEM", shrinkable=True),
)


@notification.callback(invoke_without_command=True)
def list_when_no_subcommand(context: typer.Context) -> None:
    """`helio notification` without a subcommand lists the notifications."""
    if context.invoked_subcommand is None:
        list_notifications()


@notification.command("list")
def list_notifications(
    all_users: Annotated[
        bool, typer.Option("--all", "-a", help="Notifications of all users; admins only.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """List your notifications."""
    items = connect().notifications.list(all_users=all_users)
    if as_json:
        print_json(items)
    elif not items:
        print("No notifications yet. Add one: helio notification add email you@example.org")
    else:
        print_table(_COLUMNS, (_row(data) for data in items))


@notification.command()
def add(
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="email, chat or webhook.")],
    address: Annotated[
        str, typer.Argument(metavar="ADDRESS", help="E-mail address or URL; - to type it hidden or pipe it in.")
    ] = "-",
    on: Annotated[
        list[str] | None,
        typer.Option(
            help="Triggers: started,ended,failed,late,ends_soon,monthly_report; admins: alerts. Default: ended."
        ),
    ] = None,
    requested_only: Annotated[
        bool, typer.Option("--requested-only", help="Only for jobs that were submitted with --notify.")
    ] = False,
    project: Annotated[
        str | None, typer.Option(help="For all jobs of this project; only for its managers.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Add a notification about your jobs.

    helio notification add email ada@example.org --on failed,late
    """
    if on and requested_only:
        raise typer.BadParameter("Use either --on or --requested-only.", param_hint="--requested-only")
    triggers = [word.strip() for text in on or [] for word in text.split(",") if word.strip()]
    target = _read_address(channel) if address == "-" else address
    created = connect().notifications.add(channel, target, [] if requested_only else triggers or None, project)
    if as_json:
        print_json(created)
        return
    print(
        f"Notification {created['id']}: {created['channel']} to {created['address']}."
        f" Test it: helio notification test {created['id']}"
    )
    if created.get("secret"):
        print_message("Its signing secret, shown only once:")
        print(created["secret"])


@notification.command("test")
def send_test_notification(
    notification_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False
) -> None:
    """Send a test message now and report whether it was delivered."""
    problem = connect().notifications.test(notification_id)
    if as_json:
        print_json({"id": notification_id, "arrived": problem is None, "problem": problem})
    elif problem is None:
        print(f"The test message of notification {notification_id} was delivered.")
    else:
        print_message(f"The test message of notification {notification_id} was not delivered: {problem}.")
    if problem is not None:
        raise typer.Exit(1)


@notification.command()
def remove(notification_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Remove a notification."""
    connect().notifications.remove(notification_id)
    if as_json:
        print_json({"id": notification_id, "removed": True})
    else:
        print(f"Notification {notification_id} is removed.")


def _read_address(channel: str) -> str:
    """The address, from standard input: chat URLs are secrets, and other users can read command lines."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    return getpass.getpass(f"Address of the {channel}: ").strip()


def _row(data: "Notification") -> list[str]:
    return [
        str(data["id"]),
        data["channel"],
        data["address"],
        ",".join(data["triggers"]) or "on request",
        f"project {data['project']}" if data["project"] else data["user"],
        format_time(data["sent_at"]) if data["sent_at"] else "-",
        data["problem"] or "-",
    ]
