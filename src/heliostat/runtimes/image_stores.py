"""Image stores: container images of one user on one node, their locks, size and cleanup. Pure.

Each container has its own store on top of this one. `use/HASH` stands for an image name: a running container holds
a shared lock on it, removing the image requires an exclusive lock, and its modification time is the last use.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LAYERS_FILE = "overlay-layers/layers.json"  # podman's list of layers, below a store
BUILD_LAYERS_FOLDER = "layers"  # in a user's store: layers that builds reuse
_BYTES = re.compile(rb'"diff-size":([0-9]{1,18})')
_HASH_LENGTH = 32


@dataclass(frozen=True, slots=True)
class CleanupPaths:
    """Folders of an image cleanup."""

    store: str
    runtime_folder: str  # private to the owner and to this cleanup; short, since podman rejects long paths


def image_lock_path(store: str, image: str) -> str:
    """The lock file of an image."""
    return f"{store}/use/{hashlib.sha256(image.encode()).hexdigest()[:_HASH_LENGTH]}"


def sum_layer_bytes(layers: bytes) -> int:
    """The size of all layers in podman's list."""
    return sum(int(found[1]) for found in _BYTES.finditer(layers))


def image_cleanup_argv(
    paths: CleanupPaths, keep_days: int, most_bytes: int | None, every_minutes: int = 0
) -> list[str]:
    """The command that removes images, to be run as the owner: first those not used for `keep_days` (0: none),
    then the least recently used while the store exceeds `most_bytes`. Does nothing if the last cleanup is less
    than `every_minutes` old. Removed images are listed in the file `swept` in the store."""
    limits = (str(keep_days), str((most_bytes or 0) // 1024), str(every_minutes))
    return ["/bin/sh", "-c", _script(), "sweep", paths.store, paths.runtime_folder, *limits]


@cache
def _script() -> str:
    return Path(__file__).with_name("image_cleanup.sh").read_text(encoding="utf-8")
