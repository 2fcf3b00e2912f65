"""Image stores on this machine: the size of users' container images, and their cleanup.

Each store belongs to its user and is not trusted: the server reads only its lists of layers and removed images,
without following links; everything else is done by a process of that user.
"""

import contextlib
import os
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from heliostat.config import ContainerSettings, Home
from heliostat.engines.containers import CONTAINER_CONFIG_FILES
from heliostat.engines.exec import setpriv_argv
from heliostat.engines.job_file_reader import read_file_without_links
from heliostat.engines.job_folders import AttemptRefused, require_run_as_user
from heliostat.engines.job_variables import RunAsUser
from heliostat.engines.local.containers import make_tool_folder
from heliostat.models.quantities import parse_memory
from heliostat.runtimes.contract import TOOL_PATH
from heliostat.runtimes.image_stores import (
    BUILD_LAYERS_FOLDER,
    LAYERS_FILE,
    CleanupPaths,
    image_cleanup_argv,
    sum_layer_bytes,
)

_MAX_LAYERS_BYTES = 64 * 2**20  # of podman's list of layers
_CLEANUP_SECONDS, _GRACE_SECONDS = 600, 30
_MAX_REPORT_BYTES = 20_000
_MAX_NAMES = 5  # of owners of images


@dataclass(frozen=True, slots=True)
class ImageStore:
    """The image store of one Unix user."""

    path: str
    owner: RunAsUser


@dataclass(frozen=True, slots=True)
class RunningImageCleanup:
    """Implements `ImageCleanup`."""

    store: ImageStore
    process: "subprocess.Popen[bytes]"

    @property
    def owner(self) -> str:
        return self.store.owner.name

    def wait(self) -> list[str]:
        return wait_for_store_cleanup(self.store, self.process)

    def stop(self) -> None:
        self.process.terminate()


def start_store_cleanups(home: Home, containers: ContainerSettings) -> Iterator[RunningImageCleanup]:
    """One store after the other, if limits are set. Raises AttemptRefused, OSError."""
    if not containers.keep_days and not max_store_bytes(containers):
        return
    for store in list_image_stores(home.images):
        yield RunningImageCleanup(store, start_store_cleanup(store, home, containers))


def list_image_stores(images: Path) -> Iterator[ImageStore]:
    """Stores that belong to the existing user whose name they have."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(images), key=lambda entry: entry.name):
            with contextlib.suppress(AttemptRefused, OSError):
                owner, found = require_run_as_user(entry.name), entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == owner.uid:
                    yield ImageStore(entry.path, owner)


def image_store_bytes(store: ImageStore) -> int:
    """The size of its images, including layers of builds; 0 if it cannot be read."""
    locations = ((), (BUILD_LAYERS_FOLDER,))
    return sum(
        sum_layer_bytes(read_file_without_links(store.path, _MAX_LAYERS_BYTES, *location, *LAYERS_FILE.split("/")))
        for location in locations
    )


def max_store_bytes(containers: ContainerSettings) -> int | None:
    """The size limit for the images of one user on one node; None: no limit."""
    return parse_memory(containers.max_size) * 2**20 or None


def describe_image_stores(images: Path, containers: ContainerSettings) -> str | None:
    """A sentence for the doctor; None: there are no images, or they cannot be read."""
    sizes = {store.owner.name: image_store_bytes(store) for store in list_image_stores(images)}
    if not (total := sum(sizes.values())):
        return None
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_MAX_NAMES]
    named = ", ".join(f"{name} {_gib(sizes[name])}" for name in largest)
    days, most = containers.keep_days, containers.max_size
    rules = [f"{days} days after their last use"] if days else []
    rules += [f"above {most} per user"] if max_store_bytes(containers) else []
    removal = f"removed {' and '.join(rules)}" if rules else "never removed"
    return f"Images of jobs and builds use {_gib(total)} ({named}); they are {removal}."


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def start_store_cleanup(store: ImageStore, home: Home, containers: ContainerSettings) -> "subprocess.Popen[bytes]":
    """Remove images that are due, as the owner. The process is under the owner's control, so its output is not
    read. Raises AttemptRefused, OSError."""
    owner = store.owner
    limited = ["timeout", "--kill-after=10", str(_CLEANUP_SECONDS), "nice", "-n", "19"]
    paths = CleanupPaths(store.path, make_tool_folder(home, owner))
    argv = image_cleanup_argv(paths, containers.keep_days, max_store_bytes(containers))
    files = {name: file if os.path.exists(file) else os.devnull for name, file in CONTAINER_CONFIG_FILES.items()}
    return subprocess.Popen(
        [*setpriv_argv(owner), *limited, *argv],
        env={"PATH": TOOL_PATH, "HOME": owner.home, "LANG": "C", **files},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_store_cleanup(store: ImageStore, process: "subprocess.Popen[bytes]") -> list[str]:
    """Wait for its end, up to its time limit. Returns one line for each removed image."""
    try:
        process.wait(_CLEANUP_SECONDS + _GRACE_SECONDS)
    except subprocess.TimeoutExpired:  # for example, its owner has stopped (SIGSTOP) it
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return _read_report(store) if process.returncode == 0 else []


def _read_report(store: ImageStore) -> list[str]:
    """The report of the last cleanup. The owner can change it, so terminal control characters are removed."""
    text = read_file_without_links(store.path, _MAX_REPORT_BYTES, "swept").decode(errors="replace")
    return ["".join(char for char in line if char.isprintable()) for line in text.splitlines()]
