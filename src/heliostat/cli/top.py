"""`helio top`: a live view of nodes and jobs."""

import contextlib
import select
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from heliostat.cli.connection import connect
from heliostat.cli.job_format import FOREIGN_JOB_COLUMNS, JOB_COLUMNS, foreign_job_row, job_row
from heliostat.cli.jobs import list_unfinished_jobs
from heliostat.cli.nodes import NODE_COLUMNS, node_row
from heliostat.cli.output import JsonFlag, StateCell, format_count, print_json, print_table, rich_cell, rich_table
from heliostat.errors import ServerUnreachable

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions, RenderableType

    from heliostat.client import Client
    from heliostat.client.api_types import JobData, ServerStatus
    from heliostat.client.nodes import Node
    from heliostat.client.slurm import ForeignJob

_MAX_JOBS = 200


class ClusterView(NamedTuple):
    status: "ServerStatus"
    nodes: "list[Node]"
    jobs: "list[JobData]"
    foreign_jobs: "list[ForeignJob]"  # submitted to Slurm directly


def top(
    once: Annotated[bool, typer.Option("--once", help="Print the state once and exit.")] = False,
    every: Annotated[float, typer.Option(help="Seconds between two refreshes.", min=0.2)] = 1.0,
    as_json: JsonFlag = False,
) -> None:
    """Watch the cluster live.

    Press q or Ctrl-C to exit.
    """
    client = connect()
    if as_json:
        print_json(_fetch(client)._asdict())
    elif once or not sys.stdout.isatty():
        _print_once(_fetch(client))
    else:
        _watch(client, every)


def _fetch(client: "Client") -> ClusterView:
    jobs = list_unfinished_jobs(client, _MAX_JOBS)
    order = {"running": 0, "starting": 1, "pending": 2, "held": 3}
    jobs.sort(key=lambda job: (order.get(job["state"], 2), job["id"]))
    return ClusterView(client.status(), client.nodes.list(), jobs, client.slurm.list_foreign_jobs(limit=_MAX_JOBS))


def _print_once(view: ClusterView) -> None:
    print(_summary(view))
    print()
    print_table(NODE_COLUMNS, (node_row(node) for node in view.nodes))
    print()
    if view.jobs:
        print_table(JOB_COLUMNS, (job_row(job) for job in view.jobs))
    else:
        print("No waiting or running jobs. Submit one: helio run -- hostname")
    if view.foreign_jobs:
        print("\nSubmitted to Slurm directly:")
        print_table(FOREIGN_JOB_COLUMNS, (foreign_job_row(job) for job in view.foreign_jobs))


def _watch(client: "Client", every: float) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False)
    view = _fetch(client)
    with _keys() as pressed, Live(console=console, screen=True, auto_refresh=False) as live:
        note = ""
        while True:
            live.update(_screen(view, console.size, note), refresh=True)
            if pressed(every):
                return
            try:
                view, note = _fetch(client), ""
            except ServerUnreachable as error:
                note = error.message


def _screen(view: ClusterView, size: "ConsoleDimensions", note: str) -> "RenderableType":
    from rich.console import Group
    from rich.text import Text

    nodes = view.nodes[: max(3, size.height // 3)]
    room = max(1, size.height - len(nodes) - 7)
    hidden_nodes, hidden_jobs = len(view.nodes) - len(nodes), len(view.jobs) - room
    parts: list[Any] = [Text(_summary(view), style="bold")]
    parts += [Text(note, style="red"), rich_table(NODE_COLUMNS, (node_row(node) for node in nodes), size.width)]
    parts.append(
        Text(f"… and {format_count(hidden_nodes, 'more node', 'more nodes')}" if hidden_nodes > 0 else "")
    )
    if view.jobs:
        parts.append(rich_table(JOB_COLUMNS, (job_row(job) for job in view.jobs[:room]), size.width))
    else:
        parts.append(rich_cell("No waiting or running jobs."))
    if left := max(0, room - len(view.jobs) - 1) if view.foreign_jobs else 0:
        parts.append(Text("Submitted to Slurm directly:"))
        parts.append(
            rich_table(FOREIGN_JOB_COLUMNS, (foreign_job_row(job) for job in view.foreign_jobs[:left]), size.width)
        )
    more = f"… and {hidden_jobs} more   " if hidden_jobs > 0 else ""
    parts.append(Text(f"{more}q: exit", style="bright_black"))
    return Group(*parts)


def _summary(view: ClusterView) -> str:
    devices = [device for node in view.nodes for device in node["devices"]]
    gpus = sum(device["card_fraction"] for device in devices)
    less = sum(1 - device["card_fraction"] for device in devices if device["job_ids"])  # MIG slices in use
    used = sum(node["gpus_used"] for node in view.nodes) - less
    jobs = ", ".join(f"{count} {StateCell(state)}" for state, count in view.status["jobs"].items() if count)
    amounts = f"{round(used, 2):g} of {round(gpus, 2):g} {'GPU' if gpus == 1 else 'GPUs'} used"
    machines = f"{format_count(len(view.nodes), 'node')}, {amounts}"
    return f"Heliostat {view.status['version']}  {machines}  {jobs or 'no jobs'}"


@contextlib.contextmanager
def _keys() -> "Iterator[Any]":
    """Yields a function that waits for some seconds and returns whether q was pressed."""
    import termios
    import time
    import tty

    if not sys.stdin.isatty():
        yield time.sleep
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setcbreak(descriptor)
    try:
        yield lambda seconds: _pressed_q(descriptor, seconds)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _pressed_q(descriptor: int, seconds: float) -> bool:
    import os

    ready, _, _ = select.select([descriptor], [], [], seconds)
    return bool(ready) and os.read(descriptor, 32)[:1].lower() in {b"q", b"\x1b"}
