"""Client API for notebooks that run as batch jobs."""

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

_MAX_BYTES = 32 * 2**20  # limit of the server


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
        """Submits a notebook as a job; `client.files.save_results` downloads its results.

        Its kernel runs in `workdir`. Default: the folder of the notebook if the server is on this machine, else a
        private folder of the job. With `upload`, a folder that contains the notebook, it runs in a copy of that
        folder. With `session`, `notebook` is a path in the working directory of a running session.
        """
        path = os.fspath(notebook)
        folder, record = options.get("upload"), options.get("record")
        job_fields = {name: value for name, value in options.items() if name not in ("upload", "record")}
        body = job_body(job_fields)
        if session is not None:
            location: dict[str, Any] = {"session": int(session), "path": path}
        else:
            location = self._upload(path, folder)
            body = body if folder is not None else self._with_workdir(body, path)
            body = with_source_code(body, record, folder or os.path.dirname(os.path.abspath(path)))
        body |= {"notebook": location, "parameters": dict(parameters or {})}
        body |= {"kernel": kernel} if kernel else {}
        response = self._transport.call("POST", "/notebooks", body, headers=idempotency_header(idempotency_key))
        return JobHandle(self._transport, response["id"], response)

    def _upload(self, path: str, folder: str | os.PathLike[str] | None) -> dict[str, Any]:
        """Uploads the notebook and returns its location on the server."""
        scanned = scan_notebook(path) if folder is None else scan_folder(folder)
        relative_path = os.path.relpath(os.path.realpath(path), os.path.realpath(scanned.path))
        if relative_path not in {file.path for file in scanned.tree.files}:
            raise Invalid(
                f"{path} is not among the uploaded files of {scanned.path}.", "Name a notebook in that folder."
            )
        return {"upload": upload_scanned_folder(self._transport, scanned), "path": relative_path}

    def _with_workdir(self, body: dict[str, Any], path: str) -> dict[str, Any]:
        if body.get("workdir") or self._transport.address.default_workdir() is None:
            return body
        return {**body, "workdir": os.path.dirname(os.path.realpath(path))}


def scan_notebook(path: str) -> ScannedFolder:
    """A folder with only this file. Raises Invalid or TooLarge."""
    from heliostat.models.uploads import TreeFile, make_tree

    real = os.path.realpath(os.path.expanduser(path))
    try:
        with open(real, "rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", "Name a notebook: analysis.ipynb.") from error
    if len(data) > _MAX_BYTES:
        raise TooLarge(f"{path} is larger than {_MAX_BYTES // 2**20} MiB.", "Clear its outputs in JupyterLab.")
    name = os.path.basename(real)
    return ScannedFolder(
        os.path.dirname(real), make_tree([TreeFile(name, hashlib.sha256(data).hexdigest(), len(data))])
    )
