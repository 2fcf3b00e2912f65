"""Image names: strict parsing, and the full name with registry and tag."""

import re
from dataclasses import dataclass

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?P<registry>(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+(?::\d{{1,5}})?|[A-Za-z0-9-]+:\d{{1,5}}|localhost)/)?"
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_MAX_LENGTH = 500
_HUB = "docker.io"


@dataclass(frozen=True, slots=True)
class ImageName:
    registry: str
    path: str
    tag: str
    digest: str | None = None

    @property
    def repository(self) -> str:
        return f"{self.registry}/{self.path}"

    def __str__(self) -> str:
        """With a digest, the tag is omitted."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


BUILT_IMAGE = ImageName("localhost", "images", "latest")
"""Stands for images that users build: an admin who restricts registries allows them as `localhost`."""


def parse_image(text: str) -> ImageName:
    """`python:3.11` is docker.io/library/python:3.11, as in docker. Raises ValueError with the reason."""
    match = _NAME.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    if match is None:
        raise ValueError("is not an image name; use [REGISTRY/]NAME[:TAG][@sha256:…] in lower case")
    registry, path = match["registry"] or _HUB, match["path"]
    if registry == _HUB and "/" not in path:
        path = f"library/{path}"
    return ImageName(registry, path, match["tag"] or "latest", match["digest"])


def is_image_file(text: str) -> bool:
    """Whether this is the path of an image file, as apptainer uses it."""
    return text.startswith("/")
