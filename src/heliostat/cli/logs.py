"""`helio logs`: prints the output of a job."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heliostat.cli.combined_logs import print_combined_logs
from heliostat.cli.connection import connect
from heliostat.cli.job_selection import JobsArgument, MineOption, NameOption, select_jobs
from heliostat.cli.output import JsonFlag, print_json, print_json_line, print_message
from heliostat.cli.wait_display import WaitDisplay

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.logs import LogFollower

_BLOCK = 64 * 1024


def logs(
    jobs: JobsArgument = None,
    mine: MineOption = False,
    name: NameOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new output until the job ends.")] = False,
    only_stdout: Annotated[bool, typer.Option("--stdout", help="Only standard output.")] = False,
    only_stderr: Annotated[bool, typer.Option("--stderr", help="Only standard error.")] = False,
    offset: Annotated[int, typer.Option(help="Start at this byte; a negative number counts from the end.")] = 0,
    tail: Annotated[int | None, typer.Option(help="Only the last N lines of each stream.", min=0)] = None,
    attempt: Annotated[
        int | None, typer.Option(help="Output of this attempt. Default: the last attempt.", min=1)
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Print the output of jobs.

    Standard output is printed to standard output, standard error to standard error. With several jobs, --follow
    begins each line with the id of its job.
    """
    if only_stdout and only_stderr:
        only_stdout = only_stderr = False
    stream = "stdout" if only_stdout else "stderr" if only_stderr else "both"
    client = connect()
    selected = _select(client, jobs, mine, name)
    if len(selected) != 1:
        print_combined_logs(client, selected, stream, follow=follow, as_json=as_json, tail=tail)
        return
    job = selected[0]
    streams = ("stdout", "stderr") if stream == "both" else (stream,)
    starts = {name: _start(client, job, name, offset, tail, attempt) for name in streams}
    if follow:
        try:
            print_followed_log(
                client.logs.follow(job, stream, attempt=attempt).start_at_offsets(starts), job, as_json
            )
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    elif as_json:
        print_json({name: client.logs.text(job, name, offset=at, attempt=attempt) for name, at in starts.items()})
    else:
        written = _copy(_read(client, job, starts, attempt))
        if not written and sys.stdout.isatty():
            print_message(_no_output_message(client, job))


def print_followed_log(follower: "LogFollower", job_id: int, as_json: bool) -> None:
    """Prints why the job waits, then its output."""
    if as_json:
        for chunk in follower:
            print_json_line(chunk._asdict())
        return
    with WaitDisplay() as display:
        follower.on_wait = lambda wait: display.show_wait(job_id, wait)
        for chunk in follower:
            with display.other_output(chunk.text):
                out = sys.stderr if chunk.stream == "stderr" else sys.stdout
                out.write(chunk.text)
                out.flush()


def _select(client: "Client", jobs: list[str] | None, mine: bool, name: str | None) -> list[int]:
    """If no job of --mine or --name is left in the queue, the newest that has ended."""
    selected = select_jobs(client, jobs, mine, name)
    if selected:
        return selected
    return [job.id for job in client.jobs.list(user="me", name=name, limit=1)] if not jobs else []


def _start(
    client: "Client", job: int, stream: str, offset: int, tail: int | None, attempt: int | None
) -> int:  # the byte to start at
    size = client.logs.read_slice(job, stream, limit=0, attempt=attempt).size
    begin = max(0, size + offset) if offset < 0 else offset
    return begin if tail is None else max(begin, _last_lines(client, job, stream, size, tail, attempt))


def _last_lines(client: "Client", job: int, stream: str, size: int, lines: int, attempt: int | None) -> int:
    """The byte at which the last lines begin; reads backwards."""
    at, remaining = size, lines
    while at > 0:
        start = max(0, at - _BLOCK)
        part = client.logs.read_slice(job, stream, offset=start, limit=at - start, attempt=attempt)
        if part.offset > start:  # output was removed here
            return min(at, part.offset)
        data = part.data
        if at == size and data.endswith(b"\n"):
            remaining += 1  # the newline at the very end closes the last line
        for position in _newlines_from_the_end(data):
            remaining -= 1
            if remaining <= 0:
                return start + position + 1
        at = start
    return 0 if lines else size


def _newlines_from_the_end(data: bytes) -> Iterator[int]:
    position = data.rfind(b"\n")
    while position >= 0:
        yield position
        position = data.rfind(b"\n", 0, position)


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
        out.flush()  # keeps the order if both streams go to the same terminal
    return written


def _no_output_message(client: "Client", job: int) -> str:
    data = client.jobs.get(job).data
    reason = f" ({data['reason']})" if data["reason"] else ""
    return f"No output. Job {job} is {data['state']}{reason}."
