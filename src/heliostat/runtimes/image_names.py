"""Names of images: read strictly, written in full."""

import re
from dataclasses import dataclass

_PART = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_NAME = re.compile(
    rf"(?:(?P<registry>(?:[A-Za-z0-9-]+\.)+[A-Za-z0-9-]+(?::\d{{1,5}})?|[A-Za-z0-9-]+:\d{{1,5}}|localhost)/)?"
    rf"(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?",
    re.ASCII,
)
_LONGEST = 500
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
        """With a digest, that alone counts."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag}"


BUILT_IMAGE = ImageName("localhost", "images", "latest")
"""Stands for those that people build: an admin who allows only some registries allows these as `localhost`."""


def parse_image(text: str) -> ImageName:
    """`python:3.11` is docker.io/library/python:3.11, as everywhere. ValueError says what is wrong."""
    found = _NAME.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError("is not the name of an image: [REGISTRY/]NAME[:TAG][@sha256:…], in small letters")
    registry, path = found["registry"] or _HUB, found["path"]
    if registry == _HUB and "/" not in path:
        path = f"library/{path}"
    return ImageName(registry, path, found["tag"] or "latest", found["digest"])


def is_image_file(text: str) -> bool:
    """An image in a file, as apptainer runs it."""
    return text.startswith("/")
