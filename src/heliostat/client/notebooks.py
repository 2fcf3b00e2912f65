"""The client's verbs on batch notebooks."""

import hashlib
import os
from collections.abc import Mapping
from typing import Any, SupportsInt, Unpack

from heliostat.client.api_types import JobOptions
from heliostat.client.jobs import JobHandle
from heliostat.client.request_bodies import job_body
from heliostat.client.source_code import with_source_code
from heliostat.client.transport import ApiResource, idempotency_header
from heliostat.client.uploads import ScannedFolder, scan_folder, upload_scanned_folder
from heliostat.errors import Invalid, TooLarge

_MOST_BYTES = 32 * 2**20  # the server refuses more


class Notebooks(ApiResource):
    def run(
        self,
        notebook: str | os.PathLike[str],
        parameters: Mapping[str, Any] | None = None,
        *,
        kernel: str | None = None,
        session: SupportsInt | None = None,
        idempotency_key: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle:
        """Puts a notebook into the queue; its results are what `client.files.save_results` fetches.

        Its kernel runs in `workdir`; left out, beside the notebook when this is the server's machine, else in a
        folder of the job's own. With `upload`, a folder that holds the notebook, it runs in a copy of that. With
        `session`, the notebook is that path in the working folder of a running session.
        """
        path = os.fspath(notebook)
        folder, record = options.get("upload"), options.get("record")
        rest = {name: value for name, value in options.items() if name not in ("upload", "record")}
        body = job_body(rest)
        if session is not None:
            place: dict[str, Any] = {"session": int(session), "path": path}
        else:
            place = self._send(path, folder)
            body = body if folder is not None else self._beside(body, path)
            body = with_source_code(body, record, folder or os.path.dirname(os.path.abspath(path)))
        body |= {"notebook": place, "parameters": dict(parameters or {})}
        body |= {"kernel": kernel} if kernel else {}
        answer = self._transport.call("POST", "/notebooks", body, headers=idempotency_header(idempotency_key))
        return JobHandle(self._transport, answer["id"], answer)

    def _send(self, path: str, folder: str | os.PathLike[str] | None) -> dict[str, Any]:
        """Where the server has it then."""
        scanned = scan_notebook(path) if folder is None else scan_folder(folder)
        inside = os.path.relpath(os.path.realpath(path), os.path.realpath(scanned.path))
        if inside not in {file.path for file in scanned.tree.files}:
            raise Invalid(f"{path} is not among what is uploaded of {scanned.path}.", "Name a notebook in it.")
        return {"upload": upload_scanned_folder(self._transport, scanned), "path": inside}

    def _beside(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        if body.get("workdir") or self._transport.address.default_workdir() is None:
            return body
        return {**body, "workdir": os.path.dirname(os.path.realpath(path))}


def scan_notebook(path: str) -> ScannedFolder:
    """A folder with nothing but this file. Raises Invalid or TooLarge."""
    from heliostat.models.uploads import TreeFile, make_tree

    real = os.path.realpath(os.path.expanduser(path))
    try:
        with open(real, "rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", "Name a notebook: analysis.ipynb.") from error
    if len(data) > _MOST_BYTES:
        raise TooLarge(f"{path} is larger than {_MOST_BYTES // 2**20} MiB.", "Clear its outputs in JupyterLab.")
    name = os.path.basename(real)
    return ScannedFolder(
        os.path.dirname(real), make_tree([TreeFile(name, hashlib.sha256(data).hexdigest(), len(data))])
    )
