"""The client's verbs on what jobs left in folders of their own."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import SupportsInt, TypedDict

from heliostat.client.transport import ApiResource
from heliostat.errors import HeliostatError, Invalid, ServerUnreachable

RESULTS_FOLDER = "results"
_PIECE_BYTES = 2**18
_DEEPEST = 20


class FileData(TypedDict):
    name: str
    kind: str  # folder, file, other
    size_bytes: int
    changed_at: str


FileList = list[FileData]
PathList = list[Path]


class Files(ApiResource):
    def list(self, job: SupportsInt, path: str = "") -> FileList:
        """What a job that ran in a folder of its own left there, or in a folder below; folders first."""
        return self._items(f"/jobs/{int(job)}/files", [("path", path)])

    def read(self, job: SupportsInt, path: str) -> Iterator[bytes]:
        """One of these files, piece by piece. Raises ServerUnreachable when it breaks off."""
        with self._transport.open_response(
            f"/jobs/{int(job)}/file", [("path", path)], timeout_seconds=120.0
        ) as answer:
            left = int(answer.headers["Content-Length"])
            while left > 0:
                piece = answer.read(min(_PIECE_BYTES, left))
                if not piece:
                    raise ServerUnreachable(f"{path} broke off, with {left} bytes to come.", "Try again.")
                left -= len(piece)
                yield piece

    def save_results(self, job: SupportsInt, to: str | os.PathLike[str]) -> PathList:
        """Saves what a job left in its folder `results` below the folder `to`; what was saved.

        A file that is there already is replaced once the new one is whole.
        """
        return [self._save(job, below, Path(to)) for below in self._files_below(job, RESULTS_FOLDER, _DEEPEST)]

    def _files_below(self, job: SupportsInt, path: str, depth: int) -> Iterator[str]:
        for entry in self.list(job, path):
            name = entry["name"]
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise HeliostatError(f"The server names a file {name!a}.", "Do not trust it.")
            if entry["kind"] == "file":
                yield f"{path}/{name}"
            elif entry["kind"] == "folder" and depth > 0:
                yield from self._files_below(job, f"{path}/{name}", depth - 1)

    def _save(self, job: SupportsInt, path: str, to: Path) -> Path:
        target = to / path.removeprefix(f"{RESULTS_FOLDER}/")
        draft = target.with_name(f".{target.name[:200]}.part")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(draft, "wb") as file:
                file.writelines(self.read(job, path))
            os.replace(draft, target)
        except OSError as error:
            raise Invalid(
                f"{target} cannot be written: {error.strerror}.", "Name another folder: --to."
            ) from error
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
        return target
