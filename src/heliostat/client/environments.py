"""Client API for software environments, and reading their files (requirements.txt, environment.yml…)."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from heliostat.client.transport import ApiResource, quote_path_segment
from heliostat.errors import Invalid

_FINISHED = ("ready", "failed")
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
_SOURCES = "requirements.txt, pyproject.toml, uv.lock, environment.yml, image:NAME or @DIGEST"

EnvironmentSource = str | os.PathLike[str] | Mapping[str, str]


class Environment(TypedDict, total=False):
    """Software packages that are built once and shared by all users who request the same."""

    digest: str
    kind: str  # requirements, pyproject, uv, conda
    python: str | None
    platform: str
    state: str  # waiting, building, ready, failed
    reason: str | None  # why it failed
    shared: bool
    created_by: str
    created_at: str
    used_at: str | None
    size_bytes: int | None
    needed: bool  # by a job that has not ended
    build_job: int
    folder: str | None  # on the nodes
    files: dict[str, str]
    lock: str | None  # the installed packages


EnvironmentList = list[Environment]


class Environments(ApiResource):
    def list(self, *, all_users: bool = False) -> EnvironmentList:
        """The caller's environments, most recently used first; with `all_users`, of all users (admins only)."""
        return self._items("/environments", [("all", all_users or None)])

    def get(self, digest: str) -> Environment:
        """An environment with its files and its lock, by its digest or the beginning of it."""
        data: Environment = self._transport.call("GET", _path(digest))
        return data

    def build(
        self,
        source: EnvironmentSource,
        *,
        python: str | None = None,
        project: str | None = None,
    ) -> Environment:
        """Builds from a file, or from texts: {"requirements": "torch"}. Returns immediately; it may exist."""
        body = {"environment": environment_body(source, python)}
        if project is not None:
            body["project"] = project
        data: Environment = self._transport.call("POST", "/environments", body, may_repeat=True)
        return data

    def log(self, digest: str, offset: int = 0) -> dict[str, Any]:
        """The build log from that byte on: `{"text", "next_offset", "state"}`."""
        part: dict[str, Any] = self._transport.call("GET", f"{_path(digest)}/log", query=[("offset", offset)])
        return part

    def follow(self, digest: str, every_seconds: float = 0.5) -> Iterator[str]:
        """The build log as it is written, until the environment is ready or has failed."""
        import time

        offset = 0
        while True:
            part = self.log(digest, offset)
            offset = part["next_offset"]
            if part["text"]:
                yield part["text"]
            elif part["state"] in _FINISHED:
                return
            else:
                time.sleep(every_seconds)

    def remove(self, digest: str) -> bool:
        """Removes it from the caller's list. Returns whether its files were deleted, as no other user has it."""
        deleted: bool = self._transport.call("DELETE", _path(digest))["gone"]
        return deleted

    def prune(self, days: int) -> int:
        """Removes environments unused for this many days (admins only). Returns their number."""
        count: int = self._transport.call("POST", "/environments/prune", {"days": days}, may_repeat=True)["count"]
        return count


def environment_body(source: EnvironmentSource, python: str | None = None) -> Any:
    """The API's form of an environment: texts of files, or a digest. Raises Invalid if a file cannot be used."""
    if isinstance(source, Mapping):
        return {**source, **({"python": python} if python else {})}
    name = os.fspath(source)
    if isinstance(source, str) and (name.startswith("@") or _DIGEST.fullmatch(name)):
        return name.removeprefix("@")
    return {**_texts(Path(name)), **({"python": python} if python else {})}


def _texts(path: Path) -> dict[str, str]:
    if path.name == "uv.lock":
        return {"pyproject": _read(path.with_name("pyproject.toml")), "uv_lock": _read(path)}
    if path.suffix == ".toml":
        lock = path.with_name("uv.lock")
        return {"pyproject": _read(path), **({"uv_lock": _read(lock)} if lock.exists() else {})}
    if path.suffix in (".yml", ".yaml"):
        return {"conda": _read(path)}
    if path.suffix in (".txt", ".in"):
        return {"requirements": _read(path)}
    raise Invalid(f"{str(path)!r} does not describe an environment.", f"Use one of: {_SOURCES}.")


def _read(path: Path) -> str:
    from heliostat.models.environments import MAX_ENVIRONMENT_CHARACTERS

    try:
        if path.stat().st_size > MAX_ENVIRONMENT_CHARACTERS:
            raise Invalid(
                f"{path} is larger than {MAX_ENVIRONMENT_CHARACTERS // 2**20} MiB.",
                "List only packages that the job needs.",
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not a text file.", "Save it in UTF-8.") from error
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", f"Use one of: {_SOURCES}.") from error


def _path(digest: str) -> str:
    return f"/environments/{quote_path_segment(digest.removeprefix('@'))}"
