"""Sends a folder with a bar that shows how far it is."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heliostat.client.uploads import is_upload_id

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.uploads import ProgressCallback

_LEAST_SECONDS = 0.3  # before, a pace means nothing


def upload_with_progress(client: "Client", folder: str) -> str:
    """The id of the upload; an id is one already."""
    if is_upload_id(folder):
        return folder
    with upload_progress_bar() as progress:
        return client.upload(folder, progress=progress)


@contextmanager
def upload_progress_bar() -> "Iterator[ProgressCallback | None]":
    """Shows how far an upload is; on terminals only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=30), TextColumn("{task.fields[far]}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Reading the folder", total=None, far="")
        begun_at = time.monotonic()

        def tell(sent: int, total: int) -> None:
            nonlocal begun_at
            if not sent:
                begun_at = time.monotonic()
            far = format_progress(sent, total, time.monotonic() - begun_at)
            bar.update(task, description="Uploading", completed=sent, total=total, far=far)

        yield tell


def format_progress(sent: int, total: int, seconds: float) -> str:
    """In words; the pace once it can be told."""
    words = f"{sent / 2**20:.1f} of {total / 2**20:.1f} MiB"
    return f"{words}, {sent / 2**20 / seconds:.1f} MiB/s" if sent and seconds >= _LEAST_SECONDS else words


def upload_job_folders(client: "Client", bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each folder that a job of a file wants to run in a copy of is sent, once."""
    folders = dict.fromkeys(body["upload"] for body in bodies if isinstance(body.get("upload"), str))
    sent = {folder: upload_with_progress(client, folder) for folder in folders}
    return [body | {"upload": sent[body["upload"]]} if body.get("upload") in sent else body for body in bodies]
