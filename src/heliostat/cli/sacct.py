"""What `sacct` prints, a piece at a time: run here, month by month, or read from a file."""

import os
import re
import secrets
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from heliostat.errors import HeliostatError, Invalid, NotFound

FIELDS = (
    *("JobID", "Cluster", "User", "Account", "State", "ExitCode", "Submit", "Start", "End", "TimelimitRaw", "QOS"),
    *("AllocCPUS", "AllocTRES", "ReqTRES", "ReqMem", "NodeList", "TotalCPU", "MaxRSS", "AveRSS", "NTasks"),
    "JobName",  # last: it may hold anything
)
_MOST_LINES = 20_000  # in one piece
_YEAR = timedelta(days=366)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some jobs with all their steps, under the header."""

    title: str
    text: str
    delimiter: str


def pieces_of_file(path: str, delimiter: str = "|") -> Iterator[Piece]:
    """`-` is standard input."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8", errors="replace", newline="\n") as file:
            yield from cut(os.path.basename(path), file, delimiter)
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Make it with sacct: see docs/admins.md.") from None
    except IsADirectoryError:
        raise Invalid(f"{path} is a folder.", "Give a file.") from None


def pieces_of_sacct(since: str | None, until: str | None) -> Iterator[Piece]:
    """Between fields stands what nobody can guess: names of jobs are their users' text."""
    end = datetime.fromisoformat(until) if until else datetime.now(UTC)
    begin = datetime.fromisoformat(since) if since else end - _YEAR
    if begin >= end:
        raise Invalid("--since is not before --until.", "Turn them round.")
    delimiter = f"\x1f{secrets.token_hex(8)}\x1f"
    for first, last in months(begin, end):
        yield from cut(f"{first:%Y-%m}", _sacct(first, last, delimiter), delimiter)


def months(begin: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From then to then, cut where a month begins."""
    while begin < end:
        following = (begin.replace(day=1) + timedelta(days=32)).replace(day=1, hour=0, minute=0, second=0)
        following = following.replace(microsecond=0)
        yield begin, min(following, end)
        begin = following


def _sacct(begin: datetime, end: datetime, delimiter: str) -> Iterator[str]:
    argv = [
        *("sacct", "--allusers", "--parsable2", f"--delimiter={delimiter}", f"--format={','.join(FIELDS)}"),
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


def cut(title: str, lines: Iterable[str], delimiter: str, most_lines: int = _MOST_LINES) -> Iterator[Piece]:
    """Cut only where a job begins: its steps belong to it."""
    numbered = iter(lines)
    header, held = next(numbered, ""), list[str]()
    begins = re.compile(rf"\d+[^.|\x1f]*{re.escape(delimiter)}")
    for line in numbered:
        if len(held) >= most_lines and begins.match(line):
            yield Piece(title, header + "".join(held), delimiter)
            held = []
        held.append(line)
    if header:
        yield Piece(title, header + "".join(held), delimiter)
