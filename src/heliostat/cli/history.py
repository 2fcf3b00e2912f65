"""Past jobs: for programs, and from other systems."""

import os
import re
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from heliostat.cli.app import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, format_count, print_json, print_json_line, print_message
from heliostat.errors import HeliostatError, Invalid, NotFound

if TYPE_CHECKING:
    from heliostat.client.slurm import HistoryImportResult

history = command_group("Past jobs, to be replayed.")
TIME_HELP = "A day or a time: 2026-10-01, 2026-10-01T12:00+02:00; UTC unless it says otherwise."
SACCT_FIELDS = (
    *("JobID", "Cluster", "User", "Account", "State", "ExitCode", "Submit", "Start", "End", "TimelimitRaw", "QOS"),
    *("AllocCPUS", "AllocTRES", "ReqTRES", "ReqMem", "NodeList", "TotalCPU", "MaxRSS", "AveRSS", "NTasks"),
    "JobName",  # last: it may hold anything
)
_MOST_LINES = 20_000  # in one piece
_YEAR = timedelta(days=366)


class HistorySource(StrEnum):
    SLURM = "slurm"


@history.callback()
def _only_verbs() -> None:
    """Past jobs, to be replayed."""


@history.command()
def export(
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help=f"Submitted since. {TIME_HELP}")
    ] = None,
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
def import_history(
    source: Annotated[HistorySource, typer.Argument(help="Where from.", show_default=False)],
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
    names = {"projects": _pairs("--project", project), "users": _pairs("--user", user)}
    begin, end = _time("--since", since), _time("--until", until)
    if file is not None and (begin or end):
        raise typer.BadParameter("--since and --until do not go with --file: all of it is taken.")
    pieces = read_chunks_from_sacct(begin, end) if file is None else read_chunks_from_file(file, delimiter)
    total = _imported(pieces, names)
    if as_json:
        print_json(total)
    else:
        _tell(total)


def _imported(pieces: "Iterable[SacctChunk]", names: dict[str, dict[str, str]]) -> "HistoryImportResult":
    """Piece by piece, with a word after each: what was brought in stays, should a later one fail."""
    client = connect()
    total: HistoryImportResult = {"jobs": 0, "known": 0, "skipped": {}, "accounts": []}
    for piece in pieces:
        done = client.slurm.import_history(piece.text, delimiter=piece.delimiter, **names)
        total["jobs"] += done["jobs"]
        total["known"] += done["known"]
        total["accounts"] += done["accounts"]
        for why, count in done["skipped"].items():
            total["skipped"][why] = total["skipped"].get(why, 0) + count
        print_message(f"{piece.title}: {format_count(total['jobs'], 'job')} so far")
    return total


def _tell(total: "HistoryImportResult") -> None:
    print(f"{format_count(total['jobs'], 'job')} imported, {total['known']} were there already.")
    for why, count in total["skipped"].items():
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


@dataclass(frozen=True, slots=True)
class SacctChunk:
    """Some jobs with all their steps, under the header."""

    title: str
    text: str
    delimiter: str


def read_chunks_from_file(path: str, delimiter: str = "|") -> Iterator[SacctChunk]:
    """`-` is standard input."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="replace", newline="\n") as file:
            yield from split_into_chunks(os.path.basename(path), file, delimiter)
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Make it with sacct: see docs/admins.md.") from None
    except IsADirectoryError:
        raise Invalid(f"{path} is a folder.", "Give a file.") from None


def read_chunks_from_sacct(since: str | None, until: str | None) -> Iterator[SacctChunk]:
    """Between fields stands what nobody can guess: names of jobs are their users' text."""
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    begin = datetime.fromisoformat(since) if since else end - _YEAR
    if begin >= end:
        raise Invalid("--since is not before --until.", "Turn them round.")
    delimiter = f"\x1f{secrets.token_hex(8)}\x1f"
    for first, last in split_into_months(begin, end):
        yield from split_into_chunks(f"{first:%Y-%m}", _sacct(first, last, delimiter), delimiter)


def split_into_months(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From then to then, cut where a month begins."""
    while begin < end:
        following = (begin.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
        following = following.replace(microsecond=0)
        yield begin, min(following, end)
        begin = following


def _sacct(begin: datetime, end: datetime, delimiter: str) -> Iterator[str]:
    argv = [
        *("sacct", "--allusers", "--parsable2", f"--delimiter={delimiter}", f"--format={','.join(SACCT_FIELDS)}"),
        *(f"--starttime={_local(begin)}", f"--endtime={_local(end)}"),
    ]
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
    try:
        running = subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, encoding="utf-8", errors="replace", text=True
        )
    except OSError as error:
        raise HeliostatError(
            f"sacct cannot be run here: {error.strerror}.",
            "Run this on a login node of the cluster, or bring its output: --file sacct.txt",
            code="no_sacct",
        ) from error
    with running:
        yield from running.stdout or ()
    if running.returncode:
        raise HeliostatError(f"sacct failed with {running.returncode}; see above.", "Is slurmdbd running?")


def _local(at: datetime) -> str:
    """Slurm takes times as the clock on the wall shows them."""
    return f"{at.astimezone():%Y-%m-%dT%H:%M:%S}"


def split_into_chunks(
    title: str, lines: Iterable[str], delimiter: str, most_lines: int = _MOST_LINES
) -> Iterator[SacctChunk]:
    """Cut only where a job begins: its steps belong to it."""
    numbered = iter(lines)
    header, held = next(numbered, ""), list[str]()
    begins = re.compile(rf"\d+[^.|\x1f]*{re.escape(delimiter)}")
    for line in numbered:
        if len(held) >= most_lines and begins.match(line):
            yield SacctChunk(title, header + "".join(held), delimiter)
            held = []
        held.append(line)
    if header:
        yield SacctChunk(title, header + "".join(held), delimiter)
