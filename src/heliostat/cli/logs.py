"""`helio logs`: what a job has printed, each stream to its own."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.connection import connect
from heliostat.cli.output import JsonFlag, print_json, print_json_line, print_message

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.logs import LogFollower

_BLOCK = 64 * 1024


def logs(
    job: Annotated[int, typer.Argument(metavar="JOB")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job is over.")] = False,
    only_stdout: Annotated[bool, typer.Option("--stdout", help="Standard output only.")] = False,
    only_stderr: Annotated[bool, typer.Option("--stderr", help="Standard error only.")] = False,
    offset: Annotated[int, typer.Option(help="From that byte on; below 0 counts from the end.")] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last lines of each stream.", min=0)] = None,
    attempt: Annotated[int | None, typer.Option(help="Of an earlier attempt.", min=1)] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print what a job has printed.

    Its standard output goes to standard output, its standard error to standard error.
    """
    if only_stdout and only_stderr:
        only_stdout = only_stderr = False
    stream = "stdout" if only_stdout else "stderr" if only_stderr else "both"
    client = connect()
    streams = ("stdout", "stderr") if stream == "both" else (stream,)
    starts = {name: _start(client, job, name, offset, tail, attempt) for name in streams}
    if follow:
        try:
            print_log_chunks(client.logs.follow(job, stream, attempt=attempt).start_at_offsets(starts), as_json)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    elif as_json:
        print_json({name: client.logs.text(job, name, offset=at, attempt=attempt) for name, at in starts.items()})
    else:
        written = _copy(_read(client, job, starts, attempt))
        if not written and sys.stdout.isatty():
            print_message(_nothing_yet(client, job))


def print_log_chunks(follower: "LogFollower", as_json: bool) -> None:
    for chunk in follower:
        if as_json:
            print_json_line(chunk._asdict())
            continue
        out = sys.stderr if chunk.stream == "stderr" else sys.stdout
        out.write(chunk.text)
        out.flush()


def _start(
    client: "Client", job: int, stream: str, offset: int, tail: int | None, attempt: int | None
) -> int:  # the byte at which to begin
    size = client.logs.read_slice(job, stream, limit=0, attempt=attempt).size
    begin = max(0, size + offset) if offset < 0 else offset
    return begin if tail is None else max(begin, _last_lines(client, job, stream, size, tail, attempt))


def _last_lines(client: "Client", job: int, stream: str, size: int, lines: int, attempt: int | None) -> int:
    """Where the last lines begin, found by reading backwards."""
    at, wanted = size, lines
    while at > 0:
        start = max(0, at - _BLOCK)
        data = client.logs.read_slice(job, stream, offset=start, limit=at - start, attempt=attempt).data
        if at == size and data.endswith(b"\n"):
            wanted += 1  # the newline at the very end closes the last line
        for place in _newlines_from_the_end(data):
            wanted -= 1
            if wanted <= 0:
                return start + place + 1
        at = start
    return 0 if lines else size


def _newlines_from_the_end(data: bytes) -> Iterator[int]:
    place = data.rfind(b"\n")
    while place >= 0:
        yield place
        place = data.rfind(b"\n", 0, place)


def _read(client: "Client", job: int, starts: dict[str, int], attempt: int | None) -> Iterator[tuple[str, bytes]]:
    if len(starts) == 2:
        return client.logs.read_both(job, starts, attempt=attempt)
    ((stream, at),) = starts.items()
    return ((stream, part) for part in client.logs.read(job, stream, offset=at, attempt=attempt))


def _copy(parts: Iterator[tuple[str, bytes]]) -> int:
    written = 0
    for stream, part in parts:
        out: Any = (sys.stderr if stream == "stderr" else sys.stdout).buffer
        written += out.write(part)
        out.flush()  # each part: the two may end on the same terminal
    return written


def _nothing_yet(client: "Client", job: int) -> str:
    data = client.jobs.get(job).data
    why = f" ({data['reason']})" if data["reason"] else ""
    return f"Job {job} is {data['state']}{why} and has printed nothing."
