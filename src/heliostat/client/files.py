"""Client API for files of jobs: list, read, and download the results folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsInt, TypedDict

from heliostat.client.destination_folder import DestinationFolder
from heliostat.client.transport import ApiResource
from heliostat.errors import HeliostatError, ServerUnreachable

RESULTS_FOLDER = "results"
_CHUNK_BYTES = 2**18
_MAX_DEPTH = 20


class FileData(TypedDict):
    name: str
    kind: str  # folder, file, other
    size_bytes: int
    changed_at: str


FileList = list[FileData]
PathList = list[Path]


class Files(ApiResource):
    def list(self, job: SupportsInt, path: str = "") -> FileList:
        """The files in the private folder of a job, or in a subfolder; folders first."""
        return self._items(f"/jobs/{int(job)}/files", [("path", path)])

    def read(self, job: SupportsInt, path: str) -> Iterator[bytes]:
        """The contents of a file in chunks. Raises ServerUnreachable if the connection breaks."""
        with self._transport.open_response(
            f"/jobs/{int(job)}/file", [("path", path)], timeout_seconds=120.0
        ) as response:
            left = int(response.headers["Content-Length"])
            while left > 0:
                chunk = response.read(min(_CHUNK_BYTES, left))
                if not chunk:
                    raise ServerUnreachable(
                        f"The download of {path} was interrupted; {left} bytes are missing.", "Try again."
                    )
                left -= len(chunk)
                yield chunk

    def save_results(self, job: SupportsInt, to: str | os.PathLike[str]) -> PathList:
        """Downloads the folder `results` of a job into the folder `to`. Returns the saved files.

        That must be a new folder, or one of yours. An existing file is replaced when the new one is complete.
        """
        with DestinationFolder(to) as folder:
            return [
                folder.save(path.split("/")[1:], self.read(job, path))
                for path in self._files_below(job, RESULTS_FOLDER, _MAX_DEPTH)
            ]

    def _files_below(self, job: SupportsInt, path: str, depth: int) -> Iterator[str]:
        for entry in self.list(job, path):
            name = entry["name"]
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise HeliostatError(
                    f"The server sent the unsafe file name {name!a}.", "Check the address of the server."
                )
            if entry["kind"] == "file":
                yield f"{path}/{name}"
            elif entry["kind"] == "folder" and depth > 0:
                yield from self._files_below(job, f"{path}/{name}", depth - 1)
