"""Past jobs: for programs, and from other systems."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import noun
from heliostat.cli.connect import connect
from heliostat.cli.output import JsonFlag, counted, print_json, print_json_line, say

if TYPE_CHECKING:
    from collections.abc import Iterable

    from heliostat.cli.sacct import Piece
    from heliostat.client.slurm import ImportedHistory

history = noun("Past jobs, to be replayed.")
When = "A day or a time: 2026-10-01, 2026-10-01T12:00+02:00; UTC unless it says otherwise."


class Source(StrEnum):
    SLURM = "slurm"


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
    found = connect().jobs.history(since=_time("--from", since), until=_time("--to", until), anonymous=anonymous)
    if as_json:
        print_json(list(found))
        return
    for job in found:
        print_json_line(job)


@history.command("import")
def bring_in(
    source: Annotated[Source, typer.Argument(help="Where from.", show_default=False)],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Jobs since then; else those of a year.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Jobs before then; else until now.")] = None,
    file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="What sacct printed, instead of running it; - reads stdin."),
    ] = None,
    delimiter: Annotated[str, typer.Option(metavar="TEXT", help="Between the fields of the file.")] = "|",
    project: Annotated[
        list[str] | None,
        typer.Option(metavar="ACCOUNT=PROJECT", help="What an account is called here; * all others."),
    ] = None,
    user: Annotated[
        list[str] | None, typer.Option(metavar="NAME=USER", help="Whose account here a Unix name is.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Bring past jobs of a Slurm cluster into the history: for reports, forecasts and replays.

    Run it again at any time: what is there already is left as it is.
    """
    from heliostat.cli.sacct import pieces_of_file, pieces_of_sacct

    names = {"projects": _pairs("--project", project), "users": _pairs("--user", user)}
    begin, end = _time("--since", since), _time("--until", until)
    if file is not None and (begin or end):
        raise typer.BadParameter("--since and --until do not go with --file: all of it is taken.")
    pieces = pieces_of_sacct(begin, end) if file is None else pieces_of_file(file, delimiter)
    total = _imported(pieces, names)
    if as_json:
        print_json(total)
    else:
        _tell(total)


def _imported(pieces: "Iterable[Piece]", names: dict[str, dict[str, str]]) -> "ImportedHistory":
    """Piece by piece, with a word after each: what was brought in stays, should a later one fail."""
    client = connect()
    total: ImportedHistory = {"jobs": 0, "known": 0, "left_out": {}, "accounts": []}
    for piece in pieces:
        done = client.slurm.import_history(piece.text, delimiter=piece.delimiter, **names)
        total["jobs"] += done["jobs"]
        total["known"] += done["known"]
        total["accounts"] += done["accounts"]
        for why, count in done["left_out"].items():
            total["left_out"][why] = total["left_out"].get(why, 0) + count
        say(f"{piece.title}: {counted(total['jobs'], 'job')} so far")
    return total


def _tell(total: "ImportedHistory") -> None:
    print(f"{counted(total['jobs'], 'job')} imported, {total['known']} were there already.")
    for why, count in total["left_out"].items():
        print(f"left out: {count} {why}")
    if total["accounts"]:
        print(f"new accounts: {', '.join(total['accounts'])}")


def _pairs(option: str, given: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in given or []:
        name, found, meaning = text.partition("=")
        if not (found and name and meaning):
            raise typer.BadParameter(f"{option}: {text!r} is no pair; write {option} NAME=NAME.")
        pairs[name] = meaning
    return pairs


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
