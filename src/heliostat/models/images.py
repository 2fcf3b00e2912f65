"""Container images built by users: names and pushes. Pure."""

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime

from heliostat.models.states import JobState

IMAGE_ARCHIVE_FILE = "image.tar"  # of a built image, in its environment folder
SIF_FILE = "image.sif"  # the same for apptainer
_NAME = re.compile(
    r"(?:localhost/)?(?P<name>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]*))?", re.ASCII
)
_MAX_NAME_LENGTH, _MAX_TAG_LENGTH, _DIGEST_PREFIX_LENGTH = 80, 60, 16


@dataclass(frozen=True, slots=True)
class ImagePush:
    """A push of an image to a registry, by a job."""

    job_id: int
    digest: str  # of the environment that holds the image
    target: str  # registry.example.org/lab/torch:2
    created_at: datetime
    pushed_digest: str | None = None  # its digest in the registry; None: unknown, or not pushed yet
    state: JobState | None = None  # of its job
    reason: str | None = None


def parse_image_name(text: str) -> str:
    """`torch` is torch:latest. Raises ValueError."""
    match = _NAME.fullmatch(text)
    tag = match["tag"] or "latest" if match else ""
    if match is None or len(match["name"]) > _MAX_NAME_LENGTH or len(tag) > _MAX_TAG_LENGTH:
        raise ValueError("must be an image name: NAME[:TAG], in lower-case letters, without a slash")
    return f"{match['name']}:{tag}"


def local_image_name(name: str, digest: str) -> str:
    """The image name in container storage; it differs for different contents."""
    return f"localhost/{name}-{digest[:_DIGEST_PREFIX_LENGTH]}"


def format_registry_login(registry: str, username: str, password: str) -> str:
    """In the format of the container tools."""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {registry: {"auth": auth}}})
