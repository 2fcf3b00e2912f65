"""`helio token`: personal access tokens."""

from typing import Annotated

import typer

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_message, print_table
from heliostat.cli.value_format import format_time
from heliostat.models.accounts import TokenScope

token = command_group("Personal access tokens for scripts and other machines.")


@token.command()
def create(
    name: Annotated[str, typer.Option(help="A name for the token, such as its purpose.")],
    days: Annotated[
        int | None,
        typer.Option(help="Days until it expires, 1 to 366. Default: 90, unless the admins changed it."),
    ] = None,
    scope: Annotated[
        TokenScope,
        typer.Option(
            help="What it may be used for: read; submit (also submit and control jobs and services); metrics "
            "(only monitoring); alerts (only reporting alerts); full (all that you may do). A token of scope "
            "submit is as powerful as your Unix user: jobs submitted with it can run any program and change all "
            "your files."
        ),
    ] = TokenScope.FULL,
    as_json: JsonFlag = False,
) -> None:
    """Create a token. It is shown only once."""
    created = connect().tokens.create(name, days, scope.value)
    if as_json:
        print_json(created)
        return
    print_message(
        f"Token {created['id']} expires {format_time(created['expires_at'])}. Store it now: it is not shown again."
    )
    print(created["token"])
    print_message("Use it on another machine: export HELIOSTAT_URL=http://… HELIOSTAT_TOKEN=…")


@token.command("list")
def list_tokens(
    user: Annotated[str | None, typer.Option(help="Tokens of this user; admins only.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """List your tokens."""
    tokens = connect().tokens.list(user)
    if as_json:
        print_json(tokens)
        return
    if not tokens:
        print("No tokens. Create one: helio token create --name laptop")
        return
    columns = ("ID", "NAME", "SCOPE", "CREATED", "EXPIRES", "LAST USED", "REVOKED")
    rows = [
        [
            str(item["id"]),
            item["name"],
            item["scope"],
            *(format_time(item[moment]) for moment in ("created_at", "expires_at", "last_used_at", "revoked_at")),
        ]
        for item in tokens
    ]
    print_table([Column(title) for title in columns], rows)


@token.command()
def revoke(token_id: Annotated[int, typer.Argument(metavar="ID")], as_json: JsonFlag = False) -> None:
    """Revoke a token."""
    connect().tokens.revoke(token_id)
    if as_json:
        print_json({"id": token_id, "revoked": True})
    else:
        print(f"Token {token_id} is revoked.")
