"""Which version of a dataset a job has seen: what admins let everybody mount read-only, as it was at its start.

The folders are other people's, and we may be root: only what everybody may read is looked at, no link is followed,
and what a file says is taken only in the form it must have.
"""

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Sequence

from heliostat.controller.failure_details import read_untrusted_text
from heliostat.models import Job

_VERSION = re.compile(r"[\w.+-]{1,100}", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_BRANCH = re.compile(r"ref: (refs/heads/[\w./-]{1,200})", re.ASCII)
_MOST_ENTRIES = 20_000
_MOST_SECONDS = 2.0
_KNOWN_SECONDS = 60.0  # for which it is not looked again: the elements of an array start together
_FOR_ALL = stat.S_IROTH | stat.S_IXOTH


class DatasetVersions:
    """Those of one installation."""

    def __init__(self, mount_paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._roots = [path.removesuffix(":ro") for path in mount_paths if path.endswith(":ro")]
        self._clock = clock
        self._known: dict[str, tuple[float, str | None]] = {}

    def mounted_versions(self, job: Job) -> tuple[str, ...]:
        """`/data/scans version 2`, for each that the job mounts; nothing of those that cannot be told."""
        told = ((path, self._version(path)) for path in self._mounted(job))
        return tuple(f"{path} {version}" for path, version in told if version is not None)

    def _mounted(self, job: Job) -> Iterator[str]:
        roots = [os.path.realpath(_filled(root, job)) for root in self._roots]
        for source in dict.fromkeys(os.path.realpath(mount.source) for mount in job.spec.mounts):
            if any(source == root or source.startswith(f"{root}/") for root in roots):
                yield source

    def _version(self, path: str) -> str | None:
        now = self._clock()
        self._known = {one: found for one, found in self._known.items() if now - found[0] < _KNOWN_SECONDS}
        if path not in self._known:
            self._known[path] = (now, find_dataset_version(path))
        return self._known[path][1]


def find_dataset_version(path: str) -> str | None:
    """Its commit, or what its VERSION says, or a fingerprint of names, sizes and times. None: not for all."""
    if not _is_for_all(path):
        return None
    if commit := _commit(f"{path}/.git"):
        return f"commit {commit}"
    if version := _word(f"{path}/VERSION", _VERSION):
        return f"version {version}"
    return f"fingerprint {_fingerprint(path)}"


def _filled(root: str, job: Job) -> str:
    return root.replace("{project}", job.project).replace("{user}", job.user)


def _is_for_all(path: str) -> bool:
    try:
        found = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_mode & _FOR_ALL == _FOR_ALL


def _commit(folder: str) -> str | None:
    """As git notes it; a branch that git has packed away is told by its list."""
    if not _is_for_all(folder):
        return None
    if commit := _word(f"{folder}/HEAD", _COMMIT):
        return commit
    branch = _BRANCH.fullmatch((read_untrusted_text(f"{folder}/HEAD", 300) or "").strip())
    if branch is None or ".." in branch[1]:
        return None
    if commit := _word(f"{folder}/{branch[1]}", _COMMIT):
        return commit
    packed = (read_untrusted_text(f"{folder}/packed-refs", 4 * 2**20) or "").splitlines()
    pairs = (line.split(" ", 1) for line in packed if line.endswith(f" {branch[1]}"))
    return next((pair[0] for pair in pairs if _COMMIT.fullmatch(pair[0])), None)


def _word(path: str, form: re.Pattern[str]) -> str | None:
    """The first line of a file that everybody may read."""
    try:
        if not os.lstat(path).st_mode & stat.S_IROTH:
            return None
    except OSError:
        return None
    lines = (read_untrusted_text(path, 300) or "").splitlines()
    return lines[0].strip() if lines and form.fullmatch(lines[0].strip()) else None


def _fingerprint(path: str) -> str:
    """Of so many files as can be looked at in a moment; then it says of how many."""
    told, count, deadline = hashlib.sha256(), 0, time.monotonic() + _MOST_SECONDS
    for folder, folders, names in os.walk(path):
        folders.sort()
        for name in sorted(names):
            if count >= _MOST_ENTRIES or time.monotonic() > deadline:
                return f"{told.hexdigest()[:16]} of the first {count} files"
            count += 1
            told.update(_entry(folder, name, path))
    return told.hexdigest()[:16]


def _entry(folder: str, name: str, top: str) -> bytes:
    try:
        found = os.lstat(f"{folder}/{name}")
    except OSError:
        return b""
    below = os.fsencode(os.path.relpath(f"{folder}/{name}", top))
    return b"%s\0%d\0%d\n" % (below, found.st_size, found.st_mtime_ns)
