"""Sends a folder with a bar that shows how far it is."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from heliostat.client.uploads import is_upload_id

if TYPE_CHECKING:
    from heliostat.client import Client
    from heliostat.client.uploads import Progress


def upload_folder(client: "Client", folder: str) -> str:
    """The id of the upload; an id is one already."""
    if is_upload_id(folder):
        return folder
    with upload_bar() as progress:
        return client.upload(folder, progress=progress)


@contextmanager
def upload_bar() -> "Iterator[Progress | None]":
    """Shows how far an upload is; on terminals only."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TransferSpeedColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("Uploading"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("upload", total=None)
        yield lambda sent, total: bar.update(task, completed=sent, total=total)


def with_uploads(client: "Client", bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each folder that a job of a file wants to run in a copy of is sent, once."""
    folders = dict.fromkeys(body["upload"] for body in bodies if isinstance(body.get("upload"), str))
    sent = {folder: upload_folder(client, folder) for folder in folders}
    return [body | {"upload": sent[body["upload"]]} if body.get("upload") in sent else body for body in bodies]
