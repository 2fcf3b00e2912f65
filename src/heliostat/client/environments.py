"""The client's verbs on environments, and how the files of one are read."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

from heliostat.client.transport import ApiResource, quote_path_segment
from heliostat.errors import Invalid

_OVER = ("ready", "failed")
_DIGEST = re.compile(r"[0-9a-f]{8,64}")
_WAYS = "requirements.txt, pyproject.toml, uv.lock, environment.yml, image:NAME or @DIGEST"

EnvironmentSource = str | os.PathLike[str] | Mapping[str, str]


class Environment(TypedDict, total=False):
    """Software that is built once, for everybody who asks for the same."""

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
    needed: bool  # by a job that is not over
    build_job: int
    folder: str | None  # on the nodes
    files: dict[str, str]
    lock: str | None  # what was installed


EnvironmentList = list[Environment]


class Environments(ApiResource):
    def list(self, *, all_users: bool = False) -> EnvironmentList:
        """Yours, the one used last first; with `all_users`, for admins, all."""
        return self._items("/environments", [("all", all_users or None)])

    def get(self, digest: str) -> Environment:
        """With its files and its lock. The beginning of the digest is enough."""
        found: Environment = self._transport.call("GET", _path(digest))
        return found

    def build(
        self,
        source: EnvironmentSource,
        *,
        python: str | None = None,
        project: str | None = None,
    ) -> Environment:
        """From a file, or from texts: {"requirements": "torch"}. Returns at once; it may be there already."""
        body = {"environment": environment_body(source, python)}
        if project is not None:
            body["project"] = project
        made: Environment = self._transport.call("POST", "/environments", body, may_repeat=True)
        return made

    def log(self, digest: str, offset: int = 0) -> dict[str, Any]:
        """What its build has printed from that byte on: `{"text", "next_offset", "state"}`."""
        part: dict[str, Any] = self._transport.call("GET", f"{_path(digest)}/log", query=[("offset", offset)])
        return part

    def follow(self, digest: str, every_seconds: float = 0.5) -> Iterator[str]:
        """What its build prints, as it comes, until it is ready or has failed."""
        import time

        offset = 0
        while True:
            part = self.log(digest, offset)
            offset = part["next_offset"]
            if part["text"]:
                yield part["text"]
            elif part["state"] in _OVER:
                return
            else:
                time.sleep(every_seconds)

    def remove(self, digest: str) -> bool:
        """From your list; whether it is gone for all."""
        gone: bool = self._transport.call("DELETE", _path(digest))["gone"]
        return gone

    def prune(self, days: int) -> int:
        """Remove what nobody used for so many days, for admins; how many those were."""
        count: int = self._transport.call("POST", "/environments/prune", {"days": days}, may_repeat=True)["count"]
        return count


def environment_body(source: EnvironmentSource, python: str | None = None) -> Any:
    """As the API takes it: texts of files, or a digest. Raises Invalid when a file cannot be used."""
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
    raise Invalid(f"{str(path)!r} is no file of an environment.", f"Name one of: {_WAYS}.")


def _read(path: Path) -> str:
    from heliostat.models.environments import MAX_ENVIRONMENT_CHARACTERS

    try:
        if path.stat().st_size > MAX_ENVIRONMENT_CHARACTERS:
            raise Invalid(
                f"{path} has more than {MAX_ENVIRONMENT_CHARACTERS // 2**20} MiB.", "List only what the job needs."
            )
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(f"{path} is not a text file.", "Write it in UTF-8.") from error
    except OSError as error:
        raise Invalid(f"{path} cannot be read: {error.strerror}.", f"Name one of: {_WAYS}.") from error


def _path(digest: str) -> str:
    return f"/environments/{quote_path_segment(digest.removeprefix('@'))}"
