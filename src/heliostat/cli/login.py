"""Who you are, here and on a server elsewhere: logins, tokens, passwords."""

import getpass
import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_fields, print_json, print_message, print_table
from heliostat.cli.value_format import format_time
from heliostat.errors import HeliostatError, Invalid

token = command_group("Personal tokens for scripts and other machines.")


def whoami(as_json: JsonFlag = False) -> None:
    """Show who the server thinks you are."""
    caller = flatten_caller(connect().auth.whoami())
    if as_json:
        print_json(caller)
        return
    projects = ", ".join(f"{one['project']} ({one['role']})" for one in caller.get("projects", []))
    print_fields(
        [
            ("name", caller["name"]),
            ("role", caller["role"]),
            ("Unix user", caller.get("unix_user") or "none: you can look, but not run jobs"),
            ("known by", caller["via"]),
            ("projects", projects or "none; ask an admin: helio project add PROJECT USER"),
        ]
    )


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="http://gpu1:8470")],
    name: Annotated[str | None, typer.Option(help="Your account.")] = None,
    password_stdin: Annotated[bool, typer.Option("--password-stdin", help="Read it from standard input.")] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Use this token instead of a password.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Log in to a server elsewhere.

    Trades your password for a token and keeps that, readable by you alone. helio logout takes it back.
    """
    from heliostat.client.address import StoredLogin, write_login
    from heliostat.client.client import Client

    client = Client(url=url)
    if not client.address.is_confidential:
        print_message(
            f"Careful: {client.address} is not encrypted; others on the network can read along. Prefer https."
        )
    if token_stdin:
        login_ = StoredLogin(client.address.url, sys.stdin.readline().strip())
    else:
        login_ = _trade_password(client, name, password_stdin)
    caller = flatten_caller(Client(url=login_.url, token=login_.token).auth.whoami())
    path = write_login(login_)
    if as_json:
        print_json({"url": login_.url, "name": caller["name"], "file": str(path)})
    else:
        print(f"Logged in to {login_.url} as {caller['name']}. Next: helio ps")


def logout(as_json: JsonFlag = False) -> None:
    """Forget the login."""
    from heliostat.client.address import delete_login, read_login
    from heliostat.client.client import Client

    known = read_login()
    if known is not None and known.token_id is not None:
        with suppress(HeliostatError):  # a server that is gone has forgotten us already
            Client(url=known.url, token=known.token).tokens.revoke(known.token_id)
    forgotten = delete_login()
    if as_json:
        print_json({"logged_out": forgotten})
    else:
        print("Logged out." if forgotten else "You were not logged in.")


def flatten_caller(caller: dict[str, Any]) -> dict[str, Any]:
    """The caller in one record, with `projects`."""
    user = caller.get("user")
    if not isinstance(user, dict):
        return caller
    rest = {key: value for key, value in user.items() if key != "memberships"}
    others = {key: value for key, value in caller.items() if key != "user"}
    return {**rest, "projects": user.get("memberships", []), **others}


def _trade_password(client: Any, name: str | None, from_stdin: bool) -> Any:
    """A token that lasts, in place of the short one a password gives."""
    import platform

    from heliostat.client.address import StoredLogin
    from heliostat.client.client import Client

    if name is None:
        if from_stdin or not sys.stdin.isatty():
            raise Invalid("Say who you are.", "Add --name NAME.")
        name = input("Name: ")
    url = client.address.url
    short = client.auth.login(name, prompt_password("Password", from_stdin=from_stdin))
    mine = Client(url=url, token=short["token"])
    lasting = mine.tokens.create(f"helio login on {platform.node()}"[:100])
    with suppress(HeliostatError):
        mine.tokens.revoke(short["id"])
    return StoredLogin(url, lasting["token"], lasting["id"])


@token.command()
def create(
    name: Annotated[str, typer.Option(help="What it is for.")],
    days: Annotated[
        int | None, typer.Option(help="How long it is good for, 1 to 366; 90 unless the admins have set another.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Make a token; it is shown only this once."""
    made = connect().tokens.create(name, days)
    if as_json:
        print_json(made)
        return
    print_message(
        f"Token {made['id']}, good until {format_time(made['expires_at'])}. Keep it: it is not shown again."
    )
    print(made["token"])
    print_message("Use it elsewhere: export HELIOSTAT_URL=http://… HELIOSTAT_TOKEN=…")


@token.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option(help="Of someone else; admins only.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List your tokens."""
    found = connect().tokens.list(user)
    if as_json:
        print_json(found)
        return
    if not found:
        print("No tokens. Make one: helio token create --name laptop")
        return
    columns = ("ID", "NAME", "MADE", "EXPIRES", "LAST USED", "REVOKED")
    rows = [
        [
            str(one["id"]),
            one["name"],
            *(format_time(one[moment]) for moment in ("created_at", "expires_at", "last_used_at", "revoked_at")),
        ]
        for one in found
    ]
    print_table([Column(title) for title in columns], rows)


@token.command()
def revoke(token_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Make a token worthless."""
    connect().tokens.revoke(token_id)
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        print(f"Token {token_id} is revoked.")


def prompt_password(prompt: str, *, from_stdin: bool, twice: bool = False) -> str:
    if from_stdin:
        return sys.stdin.readline().rstrip("\n")
    if not sys.stdin.isatty():
        raise Invalid("There is nobody to ask for a password.", "Pipe it in with --password-stdin.")
    password = getpass.getpass(f"{prompt}: ")
    if twice and getpass.getpass(f"{prompt} again: ") != password:
        raise Invalid("The two passwords differ.", "Try again.")
    return password
