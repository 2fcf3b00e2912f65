"""`helio history`: export finished jobs, or import them from Slurm's accounting (sacct)."""

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

from heliostat.cli.command_tree import command_group
from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, format_count, print_json, print_json_line, print_message
from heliostat.errors import HeliostatError, Invalid, NotFound

if TYPE_CHECKING:
    from heliostat.client.slurm import HistoryImportResult

history = command_group("Past jobs: export them, or import them from Slurm.")
TIME_HELP = "A date or time: 2026-10-01, 2026-10-01T12:00+02:00. UTC if it has no time zone."
SACCT_FIELDS = (
    *("JobID", "Cluster", "User", "Account", "State", "ExitCode", "Submit", "Start", "End", "TimelimitRaw", "QOS"),
    *("AllocCPUS", "AllocTRES", "ReqTRES", "ReqMem", "NodeList", "TotalCPU", "MaxRSS", "AveRSS", "NTasks"),
    "JobName",  # after all others: it may contain any text
    "SubmitLine",  # shows which jobs this Heliostat has submitted; from Slurm 20.11 on
)
_SUBMITTED_BY_HELIOSTAT = "heliostat:"
_MAX_CHUNK_LINES = 20_000
_YEAR = timedelta(days=366)


class HistorySource(StrEnum):
    SLURM = "slurm"


@history.callback()
def _group() -> None:
    """Past jobs: export them, or import them from Slurm."""


@history.command()
def export(
    since: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help=f"Jobs submitted at or after TIME. {TIME_HELP}")
    ] = None,
    until: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Jobs submitted before TIME.")] = None,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Replace names of users and projects by pseudonyms.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print finished jobs, one JSON object per line. helio simulate reads this format."""
    jobs_found = connect().jobs.history(
        since=_time("--from", since), until=_time("--to", until), anonymous=anonymous
    )
    if as_json:
        print_json(list(jobs_found))
        return
    for job in jobs_found:
        print_json_line(job)


@history.command("import")
def import_history(
    source: Annotated[HistorySource, typer.Argument(help="Source of the jobs.", show_default=False)],
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Jobs since TIME. Default: one year ago.")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Jobs before TIME. Default: now.")] = None,
    file: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="Read the output of sacct from a file (- for standard input)."),
    ] = None,
    delimiter: Annotated[str, typer.Option(metavar="TEXT", help="Field delimiter of the file.")] = "|",
    project: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ACCOUNT=PROJECT", help="Project for a Slurm account; * for all others. May be repeated."
        ),
    ] = None,
    user: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=USER", help="Heliostat user for a Unix user. May be repeated."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Import past jobs of a Slurm cluster for reports, forecasts and simulations.

    May be repeated: jobs that were imported before are not changed.
    """
    names = {"projects": _pairs("--project", project), "users": _pairs("--user", user)}
    begin, end = _time("--since", since), _time("--until", until)
    if file is not None and (begin or end):
        raise typer.BadParameter("--since and --until cannot be used with --file: the whole file is imported.")
    chunks = read_chunks_from_sacct(begin, end) if file is None else read_chunks_from_file(file, delimiter)
    total = _import_chunks(chunks, names)
    if as_json:
        print_json(total)
    else:
        _print_result(total)


def _import_chunks(chunks: "Iterable[SacctChunk]", names: dict[str, dict[str, str]]) -> "HistoryImportResult":
    """Reports progress after each chunk; imported chunks stay if a later one fails."""
    client = connect()
    total: HistoryImportResult = {"jobs": 0, "known": 0, "skipped": {}, "accounts": []}
    for chunk in chunks:
        result = client.slurm.import_history(chunk.text, delimiter=chunk.delimiter, **names)
        total["jobs"] += result["jobs"]
        total["known"] += result["known"]
        total["accounts"] += result["accounts"]
        for reason, count in result["skipped"].items():
            total["skipped"][reason] = total["skipped"].get(reason, 0) + count
        print_message(f"{chunk.title}: {format_count(total['jobs'], 'job')} imported so far")
    return total


def _print_result(total: "HistoryImportResult") -> None:
    print(f"{format_count(total['jobs'], 'job')} imported, {total['known']} were imported before.")
    for reason, count in total["skipped"].items():
        print(f"skipped: {count} ({reason})")
    if total["accounts"]:
        print(f"new accounts: {', '.join(total['accounts'])}")


def _pairs(option: str, texts: list[str] | None) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts or []:
        name, equals, value = text.partition("=")
        if not (equals and name and value):
            raise typer.BadParameter(f"{option}: {text!r} is not a pair. Write {option} NAME=NAME.")
        pairs[name] = value
    return pairs


def _time(option: str, text: str | None) -> str | None:
    from datetime import UTC, datetime

    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option}: {text!r} is not a time. Write 2026-10-01 or 2026-10-01T12:00."
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).isoformat()


@dataclass(frozen=True, slots=True)
class SacctChunk:
    """A header and the lines of some jobs, each with all its steps."""

    title: str
    text: str
    delimiter: str


def read_chunks_from_file(path: str, delimiter: str = "|") -> Iterator[SacctChunk]:
    """Reads sacct output from a file; `-` is standard input."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="replace", newline="\n") as file:
            yield from split_into_chunks(os.path.basename(path), file, delimiter)
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Create it with sacct: see docs/admins.md.") from None
    except IsADirectoryError:
        raise Invalid(f"{path} is a folder.", "Name a file.") from None


def read_chunks_from_sacct(since: str | None, until: str | None) -> Iterator[SacctChunk]:
    """Runs sacct month by month. Uses a random delimiter: names of jobs may contain any text."""
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    begin = datetime.fromisoformat(since) if since else end - _YEAR
    if begin >= end:
        raise Invalid("--since is not before --until.", "Swap them.")
    delimiter = f"\x1f{secrets.token_hex(8)}\x1f"
    for first, last in split_into_months(begin, end):
        yield from split_into_chunks(f"{first:%Y-%m}", _sacct(first, last, delimiter), delimiter)


def split_into_months(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The period from begin to end, split at the beginning of each month."""
    while begin < end:
        next_month = (begin.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
        next_month = next_month.replace(microsecond=0)
        yield begin, min(next_month, end)
        begin = next_month


def _sacct(begin: datetime, end: datetime, delimiter: str) -> Iterator[str]:
    environment = {**os.environ, "SLURM_TIME_FORMAT": "%s", "LC_ALL": "C.UTF-8"}
    try:
        fields = _available_fields(environment)
        argv = [
            *("sacct", "--allusers", "--parsable2", f"--delimiter={delimiter}", f"--format={','.join(fields)}"),
            *(f"--starttime={_local(begin)}", f"--endtime={_local(end)}"),
        ]
        running = subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, encoding="utf-8", errors="replace", text=True
        )
    except OSError as error:
        raise HeliostatError(
            f"Cannot run sacct: {error.strerror}.",
            "Run this on a login node of the cluster, or copy the output of sacct here: --file sacct.txt",
            code="no_sacct",
        ) from error
    with running:
        output = iter(running.stdout or ())
        yield next(output, "")  # the header
        for line in output:
            if delimiter in line:  # else it is the rest of a name or command with line breaks
                yield _without_foreign_command(line, delimiter, len(fields))
    if running.returncode:
        raise HeliostatError(
            f"sacct failed with exit code {running.returncode}; its error is above.",
            "Check that slurmdbd is running.",
        )


def _available_fields(environment: dict[str, str]) -> tuple[str, ...]:
    known = subprocess.run(
        ["sacct", "--helpformat"], env=environment, capture_output=True, text=True, check=False
    ).stdout.split()
    return SACCT_FIELDS if "SubmitLine" in known else SACCT_FIELDS[:-1]


def _without_foreign_command(line: str, delimiter: str, count: int) -> str:
    """Command lines of jobs that were submitted without Heliostat are private, and not needed."""
    fields = line.rstrip("\n").split(delimiter)
    if len(fields) == count == len(SACCT_FIELDS) and _SUBMITTED_BY_HELIOSTAT not in fields[-1]:
        fields[-1] = ""
    return delimiter.join(fields) + "\n"


def _local(at: datetime) -> str:
    """sacct expects local times."""
    return f"{at.astimezone():%Y-%m-%dT%H:%M:%S}"


def split_into_chunks(
    title: str, lines: Iterable[str], delimiter: str, max_lines: int = _MAX_CHUNK_LINES
) -> Iterator[SacctChunk]:
    """Splits only at the first line of a job, so that its steps stay with it."""
    remaining = iter(lines)
    header, chunk = next(remaining, ""), list[str]()
    first_line_of_job = re.compile(rf"\d+[^.|\x1f]*{re.escape(delimiter)}")
    for line in remaining:
        if len(chunk) >= max_lines and first_line_of_job.match(line):
            yield SacctChunk(title, header + "".join(chunk), delimiter)
            chunk = []
        chunk.append(line)
    if header:
        yield SacctChunk(title, header + "".join(chunk), delimiter)
