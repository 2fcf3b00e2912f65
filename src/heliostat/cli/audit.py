"""`helio audit`: the audit log."""

import json
from typing import Annotated

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import Column, JsonFlag, print_json, print_table
from heliostat.cli.value_format import format_time


def audit(
    limit: Annotated[int, typer.Option(help="Maximum number of entries.", min=1)] = 50,
    user: Annotated[str | None, typer.Option("--user", "-u", help="Only actions of this user.")] = None,
    text: Annotated[
        str | None, typer.Option(help="Only entries with this text in the action or target: node.drain.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show the audit log."""
    entries = list(connect().auth.audit_log(limit, user, text))
    if as_json:
        print_json(entries)
        return
    if not entries:
        print("No matching entries." if user or text else "The audit log is empty.")
        return
    columns = [Column(title) for title in ("AT", "USER", "VIA", "FROM", "ACTION", "TARGET")]
    rows = [
        [
            format_time(entry["at"]),
            *(str(entry[field]) for field in ("user", "via", "address", "action", "target")),
            json.dumps(entry["detail"], ensure_ascii=False) if entry["detail"] else "",
        ]
        for entry in entries
    ]
    print_table([*columns, Column("DETAIL", shrinkable=True)], rows)
