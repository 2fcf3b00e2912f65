"""Uploads folders and shows a progress bar."""

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heliostat.cli.output import print_message
from heliostat.client.uploads import is_upload_id

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.uploads import ProgressCallback

_MIN_SECONDS = 0.3  # before that, the speed is not meaningful


def upload_with_progress(client: "Client", folder: str) -> str:
    """Uploads a folder and returns the id of the upload. An upload id is returned as it is."""
    if is_upload_id(folder):
        return folder
    with upload_progress_bar() as progress:
        return client.upload(folder, progress=progress)


@contextmanager
def upload_progress_bar() -> "Iterator[ProgressCallback | None]":
    """Yields a callback that updates a progress bar; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[amount]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the folder", total=None, amount="")
        started_at = time.monotonic()

        def update(sent: int, total: int) -> None:
            nonlocal started_at
            if not sent:
                started_at = time.monotonic()
            amount = format_progress(sent, total, time.monotonic() - started_at)
            bar.update(task, description="Uploading", completed=sent, total=total, amount=amount)

        yield update


def format_progress(sent: int, total: int, seconds: float) -> str:
    """`1.0 of 2.0 MiB, 0.5 MiB/s`; the speed only after some time."""
    amount = f"{sent / 2**20:.1f} of {total / 2**20:.1f} MiB"
    return f"{amount}, {sent / 2**20 / seconds:.1f} MiB/s" if sent and seconds >= _MIN_SECONDS else amount


def warn_about_empty_folder(client: "Client", jobs: Iterable[Mapping[str, Any]], options: tuple[str, str]) -> None:
    """From another machine, a job without code and working directory starts in an empty folder. `options` name the
    two in the words of the command or file."""
    if client.address.is_local_socket or all(job.get("upload") or job.get("workdir") for job in jobs):
        return
    upload, workdir = options
    print_message(
        f"The server is on another machine: the job starts in an empty folder there."
        f" {upload} sends this folder with it; {workdir} names a folder of the cluster."
    )


def upload_job_folders(client: "Client", bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The jobs with the ids of their uploads; uploads each of their folders once."""
    folders = dict.fromkeys(body["upload"] for body in bodies if isinstance(body.get("upload"), str))
    ids = {folder: upload_with_progress(client, folder) for folder in folders}
    return [body | {"upload": ids[body["upload"]]} if body.get("upload") in ids else body for body in bodies]
