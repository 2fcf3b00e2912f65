"""Prints the output of several jobs, one after the other or as it is written."""

import queue
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from heliostat.cli.output import print_json, print_json_line, print_message

if TYPE_CHECKING:
    from heliostat.client import Client, LogChunk

_MAX_FOLLOWED_AT_ONCE = 8  # connections; the output of further jobs is printed when one of these has ended
_OutputQueue = queue.SimpleQueue["tuple[int, LogChunk | None] | Exception"]


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
    """Prints the output of all jobs as it is written, until all have ended."""
    pending_lines: dict[tuple[int, str], str] = {}
    for job_id, chunk in _chunks(client, job_ids, stream):
        if as_json:
            print_json_line({"job_id": job_id, **chunk._asdict()})
            continue
        *lines, rest = (pending_lines.pop((job_id, chunk.stream), "") + chunk.text).split("\n")
        pending_lines |= {(job_id, chunk.stream): rest} if rest else {}
        _print_lines(job_id, chunk.stream, lines)
    for (job_id, name), rest in pending_lines.items():
        _print_lines(job_id, name, [rest])


def _print_lines(job_id: int, stream: str, lines: Sequence[str]) -> None:
    out = sys.stderr if stream == "stderr" else sys.stdout
    out.writelines(f"{job_id}: {line}\n" for line in lines)
    out.flush()


def _chunks(client: "Client", job_ids: Sequence[int], stream: str) -> "Iterator[tuple[int, LogChunk]]":
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
        job_id, chunk = received
        if chunk is None:
            unfinished -= 1
        else:
            yield job_id, chunk


def _follow_next(client: "Client", jobs: queue.SimpleQueue[int], stream: str, output: _OutputQueue) -> None:
    try:
        while not jobs.empty():
            job_id = jobs.get_nowait()
            for chunk in client.logs.follow(job_id, stream):
                output.put((job_id, chunk))
            output.put((job_id, None))
    except queue.Empty:
        return
    except Exception as error:  # noqa: BLE001 - the main thread raises it
        output.put(error)
