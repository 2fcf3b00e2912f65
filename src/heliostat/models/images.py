"""Images that people build from a file of theirs: what they are called, and where they have been pushed. Pure."""

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime

from heliostat.models.states import JobState

ARCHIVE = "image.tar"  # of one that was built, in the folder it has as an environment
SIF = "image.sif"  # the same, as apptainer makes it
CANNOT_PUSH = "the image cannot be pushed: "
_NAME = re.compile(
    r"(?:localhost/)?(?P<name>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]*))?", re.ASCII
)
_LONGEST_NAME, _LONGEST_TAG, _OF_DIGEST = 80, 60, 16
_SILENT = ("connection refused", "no such host", "i/o timeout", "no route to host", "network is unreachable")
_LOCKED = ("unauthorized", "authentication required", "denied", "403 (forbidden)", "invalid username/password")


@dataclass(frozen=True, slots=True)
class Push:
    """To a registry, by a job."""

    job_id: int
    digest: str  # of the environment that holds the image
    target: str  # registry.example.org/lab/torch:2
    created_at: datetime
    pushed_digest: str | None = None  # what it is there; None: not known, or not there yet
    state: JobState | None = None  # of its job
    reason: str | None = None


def parse_own_name(text: str) -> str:
    """`torch` is torch:latest. ValueError says what is wrong."""
    found = _NAME.fullmatch(text)
    tag = found["tag"] or "latest" if found else ""
    if found is None or len(found["name"]) > _LONGEST_NAME or len(tag) > _LONGEST_TAG:
        raise ValueError("is not the name of an image of one's own: NAME[:TAG], in small letters, without a slash")
    return f"{found['name']}:{tag}"


def stored_name(name: str, digest: str) -> str:
    """What containers know it as: another one for other contents."""
    return f"localhost/{name}-{digest[:_OF_DIGEST]}"


def login_text(registry: str, username: str, password: str) -> str:
    """As the tools read it."""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {registry: {"auth": auth}}})


def push_words(said: str) -> str:
    """Why a push failed, from the last words of the tool."""
    last = said.lower()
    if any(mark in last for mark in _SILENT):
        return f"{CANNOT_PUSH}the registry does not answer. {_last_line(said)}"
    if any(mark in last for mark in _LOCKED):
        return f"{CANNOT_PUSH}the registry refuses this login, or it may not push there. {_last_line(said)}"
    return f"{CANNOT_PUSH}{_last_line(said) or 'the tool said nothing'}"


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
