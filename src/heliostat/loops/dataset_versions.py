"""Versions of the shared datasets that a job mounts: read-only paths from the settings, at the start of the job.

The folders belong to users and the server may run as root: only files that all users may read are used, no link is
followed, and the contents are checked against a pattern.
"""

import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from heliostat.controller.failure_details import read_untrusted_text
from heliostat.models import Job
from heliostat.untrusted_folders import OpenFolder, walk_folders

_VERSION = re.compile(r"[\w.+-]{1,100}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_BRANCH = re.compile(r"ref: (refs/heads/[\w./-]{1,200})", re.ASCII)
_MAX_FILES = 20_000
_MAX_SECONDS = 2.0
_CACHE_SECONDS = 60.0  # the elements of an array start together
_READABLE_BY_ALL = stat.S_IROTH | stat.S_IXOTH


class DatasetVersions:
    """Finds versions, with a short-lived cache."""

    def __init__(self, mount_paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = [path.removesuffix(":ro") for path in mount_paths if path.endswith(":ro")]
        self._clock = clock
        self._cache: dict[str, tuple[float, str | None]] = {}

    def mounted_versions(self, job: Job) -> tuple[str, ...]:
        """`/data/scans version 2` for each mounted dataset with a known version."""
        versions = ((path, self._version(path)) for path in self._mounted(job))
        return tuple(f"{path} {version}" for path, version in versions if version is not None)

    def _mounted(self, job: Job) -> Iterator[str]:
        roots = [os.path.realpath(_expand(root, job)) for root in self._roots]
        for source in dict.fromkeys(os.path.realpath(mount.source) for mount in job.spec.mounts):
            if any(source == root or source.startswith(f"{root}/") for root in roots):
                yield source

    def _version(self, path: str) -> str | None:
        now = self._clock()
        self._cache = {cached: entry for cached, entry in self._cache.items() if now - entry[0] < _CACHE_SECONDS}
        if path not in self._cache:
            self._cache[path] = (now, find_dataset_version(path))
        return self._cache[path][1]


def find_dataset_version(path: str) -> str | None:
    """Its git commit, the text of its VERSION file, or a fingerprint of names, sizes and times. None: not readable
    by all users."""
    if not _is_readable_by_all(path):
        return None
    if commit := _commit(f"{path}/.git"):
        return f"commit {commit}"
    if version := _first_line(f"{path}/VERSION", _VERSION):
        return f"version {version}"
    return f"fingerprint {_fingerprint(path)}"


def _expand(root: str, job: Job) -> str:
    return root.replace("{project}", job.project).replace("{user}", job.user)


def _is_readable_by_all(path: str) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_mode & _READABLE_BY_ALL == _READABLE_BY_ALL


def _commit(folder: str) -> str | None:
    """From `HEAD`, the file of the branch, or `packed-refs`."""
    if not _is_readable_by_all(folder):
        return None
    if commit := _first_line(f"{folder}/HEAD", _COMMIT):
        return commit
    branch = _BRANCH.fullmatch((read_untrusted_text(f"{folder}/HEAD", 300) or "").strip())
    if branch is None or ".." in branch[1]:
        return None
    if commit := _first_line(f"{folder}/{branch[1]}", _COMMIT):
        return commit
    packed = (read_untrusted_text(f"{folder}/packed-refs", 4 * 2**20) or "").splitlines()
    pairs = (line.split(" ", 1) for line in packed if line.endswith(f" {branch[1]}"))
    return next((pair[0] for pair in pairs if _COMMIT.fullmatch(pair[0])), None)


def _first_line(path: str, pattern: re.Pattern[str]) -> str | None:
    """The first line of a file that all users may read, if it matches the pattern."""
    try:
        if not os.lstat(path).st_mode & stat.S_IROTH:
            return None
    except OSError:
        return None
    lines = (read_untrusted_text(path, 300) or "").splitlines()
    return lines[0].strip() if lines and pattern.fullmatch(lines[0].strip()) else None


def _fingerprint(path: str) -> str:
    """Of all files, or of the first ones within the limits of number and time."""
    digest, count, deadline = hashlib.sha256(), 0, time.monotonic() + _MAX_SECONDS
    with contextlib.suppress(OSError):
        for folder in walk_folders(path, enter_mounts=True):
            for entry in sorted(folder.files(), key=lambda entry: entry.name):
                if count >= _MAX_FILES or time.monotonic() > deadline:
                    break
                count += 1
                digest.update(_line(folder, entry))
            if count >= _MAX_FILES or time.monotonic() > deadline:
                return f"{digest.hexdigest()[:16]} of the first {count} files"
    return digest.hexdigest()[:16]


def _line(folder: OpenFolder, entry: "os.DirEntry[str]") -> bytes:
    try:
        status = entry.stat(follow_symlinks=False)
        if entry.is_dir():  # a link to a folder
            return b""
    except OSError:
        return b""
    relative = os.fsencode("/".join((*folder.parts, entry.name)))
    return b"%s\0%d\0%d\n" % (relative, status.st_size, status.st_mtime_ns)
