"""`helio login`, `logout` and `whoami`."""

import sys
from contextlib import suppress
from typing import Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_fields, print_json, print_message
from heliostat.cli.password_prompt import prompt_password
from heliostat.errors import HeliostatError, Invalid


def whoami(as_json: JsonFlag = False) -> None:
    """Show your account on the server."""
    caller = flatten_caller(connect().auth.whoami())
    if as_json:
        print_json(caller)
        return
    projects = ", ".join(f"{item['project']} ({item['role']})" for item in caller.get("projects", []))
    print_fields(
        [
            ("name", caller["name"]),
            ("role", caller["role"]),
            ("Unix user", caller.get("unix_user") or "none: you cannot run jobs"),
            ("logged in by", caller["via"]),
            ("projects", projects or "none; an admin can add you: helio project add PROJECT USER"),
        ]
    )


def login(
    url: Annotated[str, typer.Argument(metavar="URL", help="Address of the server: https://gpu1:8470")],
    name: Annotated[str | None, typer.Option(help="Name of your account.")] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password from standard input.")
    ] = False,
    token_stdin: Annotated[
        bool, typer.Option("--token-stdin", help="Read an access token from standard input; no password.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Log in to a remote server.

    Creates an access token with your password and stores the token in a file that only you can read. helio logout
    revokes it.
    """
    from heliostat.client.client import Client
    from heliostat.client.stored_login import StoredLogin, write_login

    client = Client(url=url)
    if not client.address.is_confidential:
        print_message(
            f"Warning: the connection to {client.address} is not encrypted; others on the network can read your"
            " password and token. Use https if possible."
        )
    if token_stdin:
        stored_login = StoredLogin(client.address.url, sys.stdin.readline().strip())
    else:
        stored_login = _create_token(client, name, password_stdin)
    caller = flatten_caller(Client(url=stored_login.url, token=stored_login.token).auth.whoami())
    path = write_login(stored_login)
    if as_json:
        print_json({"url": stored_login.url, "name": caller["name"], "file": str(path)})
    else:
        print(f"Logged in to {stored_login.url} as {caller['name']}. Next: helio ps")


def logout(as_json: JsonFlag = False) -> None:
    """Log out: revoke and delete the stored token."""
    from heliostat.client.client import Client
    from heliostat.client.stored_login import delete_login, read_login

    stored = read_login()
    if stored is not None and stored.token_id is not None:
        with suppress(HeliostatError):  # the server may be gone, or the token revoked already
            Client(url=stored.url, token=stored.token).tokens.revoke(stored.token_id)
    deleted = delete_login()
    if as_json:
        print_json({"logged_out": deleted})
    else:
        print("Logged out." if deleted else "You were not logged in.")


def flatten_caller(caller: dict[str, Any]) -> dict[str, Any]:
    """The caller as one flat record, with `projects`."""
    user = caller.get("user")
    if not isinstance(user, dict):
        return caller
    user_fields = {key: value for key, value in user.items() if key != "memberships"}
    login_fields = {key: value for key, value in caller.items() if key != "user"}
    return {**user_fields, "projects": user.get("memberships", []), **login_fields}


def _create_token(client: Any, name: str | None, from_stdin: bool) -> Any:
    """Logs in with a password and creates a long-lived token; the login itself gives only a short-lived one."""
    import platform

    from heliostat.client.client import Client
    from heliostat.client.stored_login import StoredLogin

    if name is None:
        if from_stdin or not sys.stdin.isatty():
            raise Invalid("The name of the account is missing.", "Add --name NAME.")
        name = input("Name: ")
    url = client.address.url
    short_lived = client.auth.login(name, prompt_password("Password", from_stdin=from_stdin))
    session_client = Client(url=url, token=short_lived["token"])
    long_lived = session_client.tokens.create(f"helio login on {platform.node()}"[:100])
    with suppress(HeliostatError):
        session_client.tokens.revoke(short_lived["id"])
    return StoredLogin(url, long_lived["token"], long_lived["id"])
