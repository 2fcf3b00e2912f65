"""The images of one person on one node, which containers use from stores of their own on top: who uses which, how
much they take, and the script that removes what nobody needs. Pure text.

`use/HASH` stands for a name of an image. A container holds it locked as long as it runs, whoever removes the image
needs it alone; when it was last written is when the image was last used.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LAYERS_FILE = "overlay-layers/layers.json"  # what podman knows of each layer, below a store
BUILD_LAYERS_FOLDER = "layers"  # in the store of a person: what builds leave for builds
_BYTES = re.compile(rb'"diff-size":([0-9]{1,18})')
_HASH_LENGTH = 32


@dataclass(frozen=True, slots=True)
class CleanupPaths:
    """Where images are removed."""

    store: str
    runtime_folder: str  # the owner's, for this alone; a short name, or podman does not take it


def image_lock_path(store: str, image: str) -> str:
    """The file that stands for it."""
    return f"{store}/use/{hashlib.sha256(image.encode()).hexdigest()[:_HASH_LENGTH]}"


def sum_layer_bytes(layers: bytes) -> int:
    """What all layers take, by podman's list of them."""
    return sum(int(found[1]) for found in _BYTES.finditer(layers))


def image_cleanup_argv(
    place: CleanupPaths, keep_days: int, most_bytes: int | None, every_minutes: int = 0
) -> list[str]:
    """To be run as the owner. What nobody has used for this long goes (0: nothing does), then what was not used
    longest while all are too large; nothing again before `every_minutes` have passed. What went is in `swept`, in
    the store."""
    limits = (str(keep_days), str((most_bytes or 0) // 1024), str(every_minutes))
    return ["/bin/sh", "-c", _text(), "sweep", place.store, place.runtime_folder, *limits]


@cache
def _text() -> str:
    return Path(__file__).with_name("image_cleanup.sh").read_text(encoding="utf-8")
