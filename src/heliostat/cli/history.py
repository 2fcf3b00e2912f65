"""Past jobs, for programs."""

from typing import Annotated

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, print_json, print_json_line

history = noun("Past jobs, to be replayed.")
When = "A day or a time: 2026-10-01, 2026-10-01T12:00+02:00; UTC unless it says otherwise."


@history.callback()
def _only_verbs() -> None:
    """Past jobs, to be replayed."""


@history.command()
def export(
    since: Annotated[str | None, typer.Option("--from", metavar="TIME", help=f"Submitted since. {When}")] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Submitted before.")] = None,
    anonymous: Annotated[bool, typer.Option("--anonymous", help="Pseudonyms instead of names.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print finished jobs, one JSON object a line: what helio simulate reads."""
    found = connect().history(since=_time("--from", since), until=_time("--to", until), anonymous=anonymous)
    if as_json:
        print_json(list(found))
        return
    for job in found:
        print_json_line(job)


def _time(option: str, text: str | None) -> str | None:
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: {text!r} is not a time; write 2026-10-01 or 2026-10-01T12:00."
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()
