"""Prints the output of several jobs, one after the other or as it is written."""

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from heliostat.cli.output import print_json, print_json_line, print_message
from heliostat.cli.wait_display import WaitDisplay
from heliostat.client.api_types import LogChunk, LogWait

if TYPE_CHECKING:
    from heliostat.client import Client

_MAX_FOLLOWED_AT_ONCE = 8  # connections; the output of further jobs is printed when one of these has ended
_OutputQueue = queue.SimpleQueue[tuple[int, LogChunk | LogWait | None] | Exception]


def print_combined_logs(
    client: "Client", job_ids: Sequence[int], stream: str, *, follow: bool, as_json: bool, tail: int | None = None
) -> None:
    """The output of each job after a line with its id; with `follow`, each line begins with the id of its job."""
    if not job_ids:
        print_message("No matching jobs.")
    elif follow:
        follow_jobs(client, job_ids, stream, as_json=as_json)
    elif as_json:
        streams = ("stdout", "stderr") if stream == "both" else (stream,)
        print_json([{"job_id": job, **{name: client.logs.text(job, name) for name in streams}} for job in job_ids])
    else:
        for job_id in job_ids:
            print_message(f"==> Job {job_id} <==")
            lines = client.logs.text(job_id, stream).splitlines(keepends=True)
            sys.stdout.write("".join(lines if tail is None else lines[len(lines) - min(tail, len(lines)) :]))
            sys.stdout.flush()


def follow_jobs(client: "Client", job_ids: Sequence[int], stream: str = "both", *, as_json: bool) -> None:
    """Prints why the jobs wait and their output as it is written, until all have ended."""
    pending_lines: dict[tuple[int, str], str] = {}
    with WaitDisplay() as display:
        for job_id, chunk in _chunks(client, job_ids, stream, None if as_json else display):
            if as_json:
                print_json_line({"job_id": job_id, **chunk._asdict()})
                continue
            *lines, rest = (pending_lines.pop((job_id, chunk.stream), "") + chunk.text).split("\n")
            pending_lines |= {(job_id, chunk.stream): rest} if rest else {}
            with display.other_output("\n"):
                _print_lines(job_id, chunk.stream, lines)
    for (job_id, name), rest in pending_lines.items():
        _print_lines(job_id, name, [rest])


def _print_lines(job_id: int, stream: str, lines: Sequence[str]) -> None:
    out = sys.stderr if stream == "stderr" else sys.stdout
    out.writelines(f"{job_id}: {line}\n" for line in lines)
    out.flush()


def _chunks(
    client: "Client", job_ids: Sequence[int], stream: str, display: WaitDisplay | None
) -> Iterator[tuple[int, LogChunk]]:
    output: _OutputQueue = queue.SimpleQueue()
    jobs: queue.SimpleQueue[int] = queue.SimpleQueue()
    for job_id in job_ids:
        jobs.put(job_id)
    for _ in range(min(_MAX_FOLLOWED_AT_ONCE, len(job_ids))):
        threading.Thread(target=_follow_next, args=(client, jobs, stream, output), daemon=True).start()
    unfinished = len(job_ids)
    while unfinished:
        received = output.get()
        if isinstance(received, Exception):
            raise received
        job_id, news = received
        if news is None:
            unfinished -= 1
            if display is not None:
                display.forget(job_id)
        elif isinstance(news, LogChunk):
            yield job_id, news
        elif display is not None:
            display.show_wait(job_id, news)


def _put_wait(output: _OutputQueue, job_id: int) -> Callable[[LogWait], None]:
    return lambda wait: output.put((job_id, wait))


def _follow_next(client: "Client", jobs: queue.SimpleQueue[int], stream: str, output: _OutputQueue) -> None:
    try:
        while not jobs.empty():
            job_id = jobs.get_nowait()
            follower = client.logs.follow(job_id, stream, on_wait=_put_wait(output, job_id))
            for chunk in follower:
                output.put((job_id, chunk))
            output.put((job_id, None))
    except queue.Empty:
        return
    except Exception as error:  # noqa: BLE001 - the main thread raises it
        output.put(error)
