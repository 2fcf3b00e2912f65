"""The images that people's containers have fetched to this machine: what they take, and their removal.

Each store is the person's own, who may put anything there: the server reads one file of it, following no link, and
everything else is done by a process that is that person.
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
from heliostat.engines.job_files import read_file_without_links
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

_MOST_BYTES = 64 * 2**20  # of podman's list of layers
_SWEEP_SECONDS, _GRACE_SECONDS = 600, 30
_MOST_TOLD_BYTES = 20_000
_MOST_NAMED = 5  # of those who have images


@dataclass(frozen=True, slots=True)
class ImageStore:
    """Of one Unix user."""

    path: str
    owner: RunAsUser


@dataclass(frozen=True, slots=True)
class RunningImageCleanup:
    """Fulfils `ImageSweep`."""

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
    """One store after the other, if there are limits. Raises Refused, OSError."""
    if not containers.keep_days and not max_store_bytes(containers):
        return
    for store in list_image_stores(home.images):
        yield RunningImageCleanup(store, start_store_cleanup(store, home, containers))


def list_image_stores(images: Path) -> Iterator[ImageStore]:
    """Those of users this machine knows, and that are really theirs."""
    with contextlib.suppress(FileNotFoundError):
        for entry in sorted(os.scandir(images), key=lambda entry: entry.name):
            with contextlib.suppress(AttemptRefused, OSError):
                owner, found = require_run_as_user(entry.name), entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(found.st_mode) and found.st_uid == owner.uid:
                    yield ImageStore(entry.path, owner)


def image_store_bytes(store: ImageStore) -> int:
    """What its images take, with the layers that builds have left; 0 if that cannot be read."""
    places = ((), (BUILD_LAYERS_FOLDER,))
    return sum(
        sum_layer_bytes(read_file_without_links(store.path, _MOST_BYTES, *place, *LAYERS_FILE.split("/")))
        for place in places
    )


def max_store_bytes(containers: ContainerSettings) -> int | None:
    """That the images of one person may take on one node; None: all there is."""
    return parse_memory(containers.max_size) * 2**20 or None


def describe_image_stores(images: Path, containers: ContainerSettings) -> str | None:
    """For the doctor; None: there are none, or they cannot be seen."""
    sizes = {store.owner.name: image_store_bytes(store) for store in list_image_stores(images)}
    if not (total := sum(sizes.values())):
        return None
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_MOST_NAMED]
    named = ", ".join(f"{name} {_gib(sizes[name])}" for name in largest)
    days, most = containers.keep_days, containers.max_size
    rules = [f"{days} days after their last use"] if days else []
    rules += [f"beyond {most} of one person"] if max_store_bytes(containers) else []
    return f"Images of jobs and builds take {_gib(total)} ({named}); they go {' and '.join(rules) or 'never'}."


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def start_store_cleanup(store: ImageStore, home: Home, containers: ContainerSettings) -> "subprocess.Popen[bytes]":
    """Removes what is due, as the owner, who may do with that process what they like: nobody listens to it.
    Raises Refused, OSError."""
    owner = store.owner
    kindly = ["timeout", "--kill-after=10", str(_SWEEP_SECONDS), "nice", "-n", "19"]
    place = CleanupPaths(store.path, make_tool_folder(home, owner))
    words = image_cleanup_argv(place, containers.keep_days, max_store_bytes(containers))
    files = {name: file if os.path.exists(file) else os.devnull for name, file in CONTAINER_CONFIG_FILES.items()}
    return subprocess.Popen(
        [*setpriv_argv(owner), *kindly, *words],
        env={"PATH": TOOL_PATH, "HOME": owner.home, "LANG": "C", **files},
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def wait_for_store_cleanup(store: ImageStore, process: "subprocess.Popen[bytes]") -> list[str]:
    """Waits for it, as long as it may take; a line for each image that went."""
    try:
        process.wait(_SWEEP_SECONDS + _GRACE_SECONDS)
    except subprocess.TimeoutExpired:  # its owner has stopped it, say
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return _told(store) if process.returncode == 0 else []


def _told(store: ImageStore) -> list[str]:
    """What the last sweep has noted, or the owner made of it: without signs that could steer a terminal."""
    text = read_file_without_links(store.path, _MOST_TOLD_BYTES, "swept").decode(errors="replace")
    return ["".join(sign for sign in line if sign.isprintable()) for line in text.splitlines()]
