"""The client's verbs on images that people build."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

from heliostat.client.environments import EnvironmentSource, environment_body
from heliostat.client.transport import ApiResource
from heliostat.client.uploads import ProgressCallback, upload_folder
from heliostat.errors import Invalid

_OVER = ("ready", "failed")
_USUAL = ("Containerfile", "Dockerfile")


class ImagePush(TypedDict):
    """Of an image to a registry."""

    job_id: int
    target: str
    created_at: str
    state: str | None  # of its job
    reason: str | None
    pushed_digest: str | None  # what it is there


class Image(TypedDict, total=False):
    """One that somebody has built."""

    digest: str  # of what it is built from
    names: list[str]  # that mean it now
    built_as: str
    kind: str  # image, definition
    state: str  # waiting, building, ready, failed
    reason: str | None  # why it failed
    image_digest: str | None  # what containers say it is
    created_by: str
    created_at: str
    used_at: str | None
    size_bytes: int | None
    needed: bool  # by a job that is not over
    build_job: int
    files: dict[str, str]
    pushes: list[ImagePush]


ImageList = list[Image]


class ImageBuildOptions(TypedDict, total=False):
    """What can be said about a build."""

    file: str | os.PathLike[str] | None  # another Containerfile than that of the folder; X.def: of apptainer
    environment: EnvironmentSource | None  # a file with packages, or its text
    base: str | None  # with `environment`: the image to begin with
    project: str | None  # whose share it uses


class Images(ApiResource):
    def list(self, *, all_users: bool = False) -> ImageList:
        """Yours, the one used last first; with `all_users`, for admins, all."""
        return self._items("/images", [("all", all_users or None)])

    def get(self, name: str) -> Image:
        """With its files and pushes, by its name or the beginning of its digest."""
        found: Image = self._transport.call("GET", _path(name))
        return found

    def build(
        self,
        name: str,
        folder: str | os.PathLike[str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        **how: Unpack[ImageBuildOptions],
    ) -> Image:
        """From a folder with a Containerfile, or from another `file`, or from an `environment` on top of a `base`.

        A file that ends in .def is apptainer's. Returns at once; it may be there already.
        """
        body: dict[str, Any] = {"name": name}
        if (project := how.get("project")) is not None:
            body["project"] = project
        if (environment := how.get("environment")) is not None:
            body |= {"environment": environment_body(environment), "base": how.get("base")}
        else:
            body |= _written(folder, how.get("file"))
        if folder is not None:
            body["upload"] = upload_folder(self._transport, folder, progress)
        made: Image = self._transport.call("POST", "/images", body, may_repeat=True)
        return made

    def follow(self, name: str, every_seconds: float = 0.5) -> Iterator[str]:
        """What its build prints, as it comes, until it is ready or has failed."""
        import time

        offset = 0
        while True:
            part = self._transport.call("GET", f"{_path(name)}/log", query=[("offset", offset)])
            offset = part["next_offset"]
            if part["text"]:
                yield part["text"]
            elif part["state"] in _OVER:
                return
            else:
                time.sleep(every_seconds)

    def push(
        self, name: str, target: str, *, username: str | None = None, password: str | None = None
    ) -> ImagePush:
        """To REGISTRY/NAME:TAG, by a job; the login is used for this push and kept nowhere."""
        body = {"target": target} | ({} if username is None else {"username": username, "password": password})
        pushed: ImagePush = self._transport.call("POST", f"{_path(name)}/push", body)
        return pushed

    def remove(self, name: str) -> bool:
        """Whether it is gone. What was pushed stays."""
        gone: bool = self._transport.call("DELETE", _path(name))["gone"]
        return gone


def _written(folder: str | os.PathLike[str] | None, file: str | os.PathLike[str] | None) -> dict[str, str]:
    path = _usual_file(Path(folder or ".")) if file is None else Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise Invalid(f"{path} cannot be read: {why}.", "Name another: --file FILE.") from error
    return {"definition" if path.suffix == ".def" else "containerfile": text}


def _usual_file(folder: Path) -> Path:
    found = next((folder / name for name in _USUAL if (folder / name).is_file()), None)
    if found is None:
        hint = "Write one, name it with --file, or build from packages: --env requirements.txt --base python:3.11."
        raise Invalid(f"{folder} has no {' or '.join(_USUAL)}.", hint)
    return found


def _path(name: str) -> str:
    return f"/images/{quote(name.removeprefix('@'), safe=':')}"
