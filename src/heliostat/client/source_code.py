"""With which code a job is submitted, as git tells it."""

import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from heliostat.models.provenance import SourceCode

PROVENANCE_VARIABLE = "HELIOSTAT_RECORD"  # 0: never
_GIT_SECONDS = 10.0
_FRESH_SECONDS = 3.0  # many jobs submitted one after the other have the same code
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_known: "dict[str, tuple[float, SourceCode | None]]" = {}
_sent: dict[str, str] = {}  # by the id of an upload of this process, the folder


def with_source_code(body: dict[str, Any], asked: bool | None, folder: object) -> dict[str, Any]:
    """The body of a job with what is known of the folder; `asked` False, or the switch: without."""
    if asked is False or os.environ.get(PROVENANCE_VARIABLE) == "0" or "record" in body:
        return body
    found = read_source_code(folder if isinstance(folder, str | os.PathLike) else os.curdir)
    return body if found is None else {**body, "record": source_code_body(found)}


def source_code_for_rerun(upload: str | None, folder: Callable[[], str | None]) -> dict[str, Any]:
    """The `record` of a job that is run again: of the upload's folder, or the one it will run in."""
    if os.environ.get(PROVENANCE_VARIABLE) == "0":
        return {}
    place = upload or folder()
    found = read_source_code(place) if place else None
    return {} if found is None else {"record": source_code_body(found)}


def source_code_body(code: "SourceCode") -> dict[str, Any]:
    return {name: value for name, value in asdict(code).items() if value not in (None, "", (), 0, False)}


def remember_uploaded_folder(upload: str, folder: str | os.PathLike[str]) -> None:
    """So that the code of a job is known though it names the upload."""
    _sent[upload] = os.path.abspath(os.fspath(folder))


def read_source_code(
    folder: str | os.PathLike[str], fresh_seconds: float = _FRESH_SECONDS, git_seconds: float = _GIT_SECONDS
) -> "SourceCode | None":
    """None where git keeps nothing, or does not answer in time. Never raises: no job fails for this."""
    try:
        path = _sent.get(os.fspath(folder)) or os.path.abspath(os.fspath(folder))
        if not _is_kept(path):
            return None
        looked_at, code = _known.get(path, (-fresh_seconds, None))
        if time.monotonic() - looked_at >= fresh_seconds:
            code = _look(_Git(path, git_seconds))
            _known[path] = (time.monotonic(), code)
        return code
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _is_kept(path: str) -> bool:
    """Without starting git: most commands are not typed in a repository."""
    while not os.path.lexists(os.path.join(path, ".git")):
        path, below = os.path.dirname(path), path
        if path == below:
            return False
    return True


@dataclass(frozen=True, slots=True)
class _Git:
    """Asked about one folder; each answer may take so long."""

    folder: str
    seconds: float

    def ask(self, *words: str) -> bytes:
        with self.started(*words) as process:
            return self.said(process)

    def started(self, *words: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*_GIT, *words],
            cwd=self.folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def said(self, process: "subprocess.Popen[bytes]", may_fail: bool = False) -> bytes:
        try:
            text, _ = process.communicate(timeout=self.seconds)
        except BaseException:
            process.kill()
            raise
        if process.returncode and not may_fail:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        return text


def _look(git: _Git) -> "SourceCode":
    from heliostat.models.provenance import MAX_UNTRACKED_FILES, SourceCode

    with git.started("config", "--null", "--get-regexp", r"^remote\..+\.url$") as config:  # beside the other
        try:
            status = git.ask("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
            remotes = git.said(config, may_fail=True)
        finally:
            config.kill()  # or we would wait for it, however long
    heads, untracked, is_changed = _read_status(status)
    commit = heads.get("branch.oid", "")
    commit = "" if commit.startswith("(") else commit  # before the first commit
    diff, is_cut = _diff(git) if is_changed and commit else ("", False)
    return SourceCode(
        folder=git.folder,
        commit=commit or None,
        branch=None if heads.get("branch.head", "(").startswith("(") else heads["branch.head"],
        remote=_remote(remotes, heads.get("branch.upstream", "")),
        diff=diff,
        is_diff_cut=is_cut,
        untracked=tuple(untracked[:MAX_UNTRACKED_FILES]),
        untracked_count=len(untracked),
    )


def _read_status(status: bytes) -> tuple[Mapping[str, str], list[str], bool]:
    """Of the branch; files git does not know; whether others have changed."""
    heads: dict[str, str] = {}
    untracked: list[str] = []
    is_changed = False
    for line in status.decode("utf-8", "backslashreplace").split("\0"):
        if line.startswith("# "):
            name, _, value = line[2:].partition(" ")
            heads[name] = value
        elif line.startswith("? "):
            untracked.append(line[2:][:1000])
        elif line[:2] in ("1 ", "2 ", "u "):
            is_changed = True
    return heads, untracked, is_changed


def _diff(git: _Git) -> tuple[str, bool]:
    from heliostat.models.provenance import MAX_DIFF_BYTES

    text = git.ask("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD").decode("utf-8", "replace")
    text = text.replace("\0", "")
    cut = text.encode()[:MAX_DIFF_BYTES].decode("utf-8", "ignore")
    return cut, len(cut) < len(text)


def _remote(config: bytes, upstream: str) -> str | None:
    from heliostat.models.provenance import remove_credentials

    name = upstream.partition("/")[0] or "origin"
    lines = (line.partition("\n") for line in config.decode("utf-8", "replace").split("\0"))
    urls = {key: url.strip() for key, _, url in lines}
    return remove_credentials(urls.get(f"remote.{name}.url", "")) or None
