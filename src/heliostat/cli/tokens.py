"""Personal tokens."""

from typing import Annotated

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_table, say
from heliostat.cli.units import clock

token = noun("Personal tokens for scripts and other machines.")


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
    say(f"Token {made['id']}, good until {clock(made['expires_at'])}. Keep it: it is not shown again.")
    print(made["token"])
    say("Use it elsewhere: export HELIOSTAT_URL=http://… HELIOSTAT_TOKEN=…")


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
            *(clock(one[moment]) for moment in ("created_at", "expires_at", "last_used_at", "revoked_at")),
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
