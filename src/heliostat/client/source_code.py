"""Records the git state of the code that a job is submitted with: commit, branch, diff, untracked files."""

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
_CACHE_SECONDS = 3.0  # many jobs submitted in a row have the same code
_GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_cache: "dict[str, tuple[float, SourceCode | None]]" = {}
_uploaded_folders: dict[str, str] = {}  # by the upload ids of this process


def with_source_code(body: dict[str, Any], record: bool | None, folder: object) -> dict[str, Any]:
    """The body of a job with the git state of the folder, unless `record` is False or HELIOSTAT_RECORD is 0."""
    if record is False or os.environ.get(PROVENANCE_VARIABLE) == "0" or "record" in body:
        return body
    code = read_source_code(folder if isinstance(folder, str | os.PathLike) else os.curdir)
    return body if code is None else {**body, "record": source_code_body(code)}


def source_code_for_rerun(upload: str | None, folder: Callable[[], str | None]) -> dict[str, Any]:
    """The `record` of a rerun: the git state of the uploaded folder, or of the folder that the job will run in."""
    if os.environ.get(PROVENANCE_VARIABLE) == "0":
        return {}
    source = upload or folder()
    code = read_source_code(source) if source else None
    return {} if code is None else {"record": source_code_body(code)}


def source_code_body(code: "SourceCode") -> dict[str, Any]:
    return {name: value for name, value in asdict(code).items() if value not in (None, "", (), 0, False)}


def remember_uploaded_folder(upload: str, folder: str | os.PathLike[str]) -> None:
    """Lets jobs that name the upload record the git state of its folder."""
    _uploaded_folders[upload] = os.path.abspath(os.fspath(folder))


def read_source_code(
    folder: str | os.PathLike[str], cache_seconds: float = _CACHE_SECONDS, git_seconds: float = _GIT_SECONDS
) -> "SourceCode | None":
    """None outside a git repository, or if git times out. Never raises: no job fails because of this."""
    try:
        path = _uploaded_folders.get(os.fspath(folder)) or os.path.abspath(os.fspath(folder))
        if not _is_in_repository(path):
            return None
        read_at, code = _cache.get(path, (-cache_seconds, None))
        if time.monotonic() - read_at >= cache_seconds:
            code = _read_repository(_Git(path, git_seconds))
            _cache[path] = (time.monotonic(), code)
        return code
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _is_in_repository(path: str) -> bool:
    """Checked without starting git, because most commands run outside a repository."""
    while not os.path.lexists(os.path.join(path, ".git")):
        parent = os.path.dirname(path)
        if parent == path:
            return False
        path = parent
    return True


@dataclass(frozen=True, slots=True)
class _Git:
    """Runs git in one folder; each command has a timeout."""

    folder: str
    timeout_seconds: float

    def run(self, *arguments: str) -> bytes:
        with self.start(*arguments) as process:
            return self.output(process)

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*_GIT, *arguments],
            cwd=self.folder,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def output(self, process: "subprocess.Popen[bytes]", may_fail: bool = False) -> bytes:
        try:
            text, _ = process.communicate(timeout=self.timeout_seconds)
        except BaseException:
            process.kill()
            raise
        if process.returncode and not may_fail:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        return text


def _read_repository(git: _Git) -> "SourceCode":
    from heliostat.models.provenance import MAX_UNTRACKED_FILES, SourceCode

    with git.start("config", "--null", "--get-regexp", r"^remote\..+\.url$") as config:  # parallel to git status
        try:
            status = git.run("status", "--porcelain=v2", "--branch", "--untracked-files=normal", "-z")
            remotes = git.output(config, may_fail=True)
        finally:
            config.kill()  # else the end of `with` would wait for it without a timeout
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
    """The branch headers, the untracked files, and whether tracked files have changed."""
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

    text = git.run("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD").decode("utf-8", "replace")
    text = text.replace("\0", "")
    truncated = text.encode()[:MAX_DIFF_BYTES].decode("utf-8", "ignore")
    return truncated, len(truncated) < len(text)


def _remote(config: bytes, upstream: str) -> str | None:
    from heliostat.models.provenance import remove_credentials

    name = upstream.partition("/")[0] or "origin"
    lines = (line.partition("\n") for line in config.decode("utf-8", "replace").split("\0"))
    urls = {key: url.strip() for key, _, url in lines}
    return remove_credentials(urls.get(f"remote.{name}.url", "")) or None
