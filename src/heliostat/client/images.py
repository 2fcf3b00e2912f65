"""Client API for container images: build, follow, push, remove."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict, Unpack
from urllib.parse import quote

from heliostat.client.environments import EnvironmentSource, environment_body
from heliostat.client.transport import ApiResource
from heliostat.client.uploads import ProgressCallback, upload_folder
from heliostat.errors import Invalid

_FINISHED = ("ready", "failed")
_DEFAULT_FILES = ("Containerfile", "Dockerfile")


class ImagePush(TypedDict):
    """A push of an image to a registry."""

    job_id: int
    target: str
    created_at: str
    state: str | None  # of the push job
    reason: str | None
    pushed_digest: str | None  # in the registry


class Image(TypedDict, total=False):
    """An image that a user has built."""

    digest: str  # of its source
    names: list[str]  # that currently refer to it
    built_as: str
    kind: str  # image, definition
    state: str  # waiting, building, ready, failed
    reason: str | None  # why it failed
    image_digest: str | None  # of the built image
    created_by: str
    created_at: str
    used_at: str | None
    size_bytes: int | None
    needed: bool  # by a job that has not ended
    build_job: int
    files: dict[str, str]
    pushes: list[ImagePush]


ImageList = list[Image]


class ImageBuildOptions(TypedDict, total=False):
    """Options of an image build."""

    file: str | os.PathLike[str] | None  # a Containerfile other than that of the folder; X.def for apptainer
    environment: EnvironmentSource | None  # a file with packages, or its text
    base: str | None  # base image for `environment`
    project: str | None  # that the build is charged to


class Images(ApiResource):
    def list(self, *, all_users: bool = False) -> ImageList:
        """The caller's images, most recently used first; with `all_users`, of all users (admins only)."""
        return self._items("/images", [("all", all_users or None)])

    def get(self, name: str) -> Image:
        """An image with its files and pushes, by its name or the beginning of its digest."""
        data: Image = self._transport.call("GET", _path(name))
        return data

    def build(
        self,
        name: str,
        folder: str | os.PathLike[str] | None = None,
        *,
        progress: ProgressCallback | None = None,
        **options: Unpack[ImageBuildOptions],
    ) -> Image:
        """Builds from a folder with a Containerfile, from another `file`, or from an `environment` and a `base`.

        A file that ends in .def is an apptainer definition. Returns immediately; the image may exist already.
        """
        body: dict[str, Any] = {"name": name}
        if (project := options.get("project")) is not None:
            body["project"] = project
        if (environment := options.get("environment")) is not None:
            body |= {"environment": environment_body(environment), "base": options.get("base")}
        else:
            body |= _build_file(folder, options.get("file"))
        if folder is not None:
            body["upload"] = upload_folder(self._transport, folder, progress)
        data: Image = self._transport.call("POST", "/images", body, may_repeat=True)
        return data

    def follow(self, name: str, every_seconds: float = 0.5) -> Iterator[str]:
        """The output of its build, as it is printed, until the image is ready or has failed."""
        import time

        offset = 0
        while True:
            part = self._transport.call("GET", f"{_path(name)}/log", query=[("offset", offset)])
            offset = part["next_offset"]
            if part["text"]:
                yield part["text"]
            elif part["state"] in _FINISHED:
                return
            else:
                time.sleep(every_seconds)

    def push(
        self, name: str, target: str, *, username: str | None = None, password: str | None = None
    ) -> ImagePush:
        """Pushes to REGISTRY/NAME:TAG in a job. The login is used only for this push and is not stored."""
        body = {"target": target} | ({} if username is None else {"username": username, "password": password})
        data: ImagePush = self._transport.call("POST", f"{_path(name)}/push", body)
        return data

    def remove(self, name: str) -> bool:
        """Returns whether the image was deleted. Pushed copies stay."""
        deleted: bool = self._transport.call("DELETE", _path(name))["gone"]
        return deleted


def _build_file(folder: str | os.PathLike[str] | None, file: str | os.PathLike[str] | None) -> dict[str, str]:
    path = _default_file(Path(folder or ".")) if file is None else Path(file)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise Invalid(f"{path} cannot be read: {reason}.", "Name another file: --file FILE.") from error
    return {"definition" if path.suffix == ".def" else "containerfile": text}


def _default_file(folder: Path) -> Path:
    path = next((folder / name for name in _DEFAULT_FILES if (folder / name).is_file()), None)
    if path is None:
        hint = "Create one, use --file FILE, or build from packages: --env requirements.txt --base python:3.11."
        raise Invalid(f"The folder {folder} has no {' or '.join(_DEFAULT_FILES)}.", hint)
    return path


def _path(name: str) -> str:
    return f"/images/{quote(name.removeprefix('@'), safe=':')}"
