"""Images that people build from a file of theirs: what they are called, and where they have been pushed. Pure."""

import base64
import json
import re
from dataclasses import dataclass
from datetime import datetime

from heliostat.models.states import JobState

IMAGE_ARCHIVE_FILE = "image.tar"  # of one that was built, in the folder it has as an environment
SIF_FILE = "image.sif"  # the same, as apptainer makes it
PUSH_FAILURE_PREFIX = "the image cannot be pushed: "
_NAME = re.compile(
    r"(?:localhost/)?(?P<name>[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)(?::(?P<tag>\w[\w.-]*))?", re.ASCII
)
_LONGEST_NAME, _LONGEST_TAG, _OF_DIGEST = 80, 60, 16
FETCH_FAILURE_PREFIX = "cannot be fetched: "
_WHOSE = "Which keys count, an admin says in /etc/containers/policy.json."
_REFUSED = (  # by the node's rules on signatures
    (
        "no signature exists",
        "it is not signed, and this node takes only what is signed by those it trusts. "
        f"Who makes it can sign it: podman push --sign-by KEY. {_WHOSE}",
    ),
    (
        "invalid gpg signature",
        f"nobody this node trusts has signed it. Choose one that is signed, or have it signed. {_WHOSE}",
    ),
    (
        "source image rejected: signature for",
        "its signature is for another image, or for another name of it. Sign it under the name it is fetched by: "
        "podman push --sign-by KEY.",
    ),
    ("is rejected by policy", "the node's rules refuse all images of there. Choose another, or ask an admin."),
)
_RULES = ("source image rejected", "policy.json")
_SILENT = ("connection refused", "no such host", "i/o timeout", "no route to host", "network is unreachable")
_LOCKED = ("unauthorized", "authentication required", "denied", "403 (forbidden)", "invalid username/password")
_UNKNOWN = ("manifest unknown", "name unknown", "not found")
_DAMAGED = ("did not match", "unexpected eof")


@dataclass(frozen=True, slots=True)
class ImagePush:
    """To a registry, by a job."""

    job_id: int
    digest: str  # of the environment that holds the image
    target: str  # registry.example.org/lab/torch:2
    created_at: datetime
    pushed_digest: str | None = None  # what it is there; None: not known, or not there yet
    state: JobState | None = None  # of its job
    reason: str | None = None


def parse_image_name(text: str) -> str:
    """`torch` is torch:latest. ValueError says what is wrong."""
    found = _NAME.fullmatch(text)
    tag = found["tag"] or "latest" if found else ""
    if found is None or len(found["name"]) > _LONGEST_NAME or len(tag) > _LONGEST_TAG:
        raise ValueError("is not the name of an image of one's own: NAME[:TAG], in small letters, without a slash")
    return f"{found['name']}:{tag}"


def local_image_name(name: str, digest: str) -> str:
    """What containers know it as: another one for other contents."""
    return f"localhost/{name}-{digest[:_OF_DIGEST]}"


def format_registry_login(registry: str, username: str, password: str) -> str:
    """As the tools read it."""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    return json.dumps({"auths": {registry: {"auth": auth}}})


def explain_push_failure(said: str) -> str:
    """Why a push failed, from the last words of the tool."""
    last = said.lower()
    if any(mark in last for mark in _SILENT):
        return f"{PUSH_FAILURE_PREFIX}the registry does not answer. {_last_line(said)}"
    if any(mark in last for mark in _LOCKED):
        return (
            f"{PUSH_FAILURE_PREFIX}the registry refuses this login, or it may not push there. {_last_line(said)}"
        )
    return f"{PUSH_FAILURE_PREFIX}{_last_line(said) or 'the tool said nothing'}"


def explain_fetch_failure(image: str, said: str) -> str:
    """Why an image could not be fetched, and what to do, from the last words of the tool."""
    last, why = said.lower(), f"{image} {FETCH_FAILURE_PREFIX}"
    registry = image.partition("/")[0]
    if refusal := explain_signature_refusal(said):
        return f"{why}{refusal}"
    if any(mark in last for mark in _SILENT):
        return f"{why}the registry does not answer. {_last_line(said)}"
    if any(mark in last for mark in _LOCKED):
        login = f"podman login --authfile ~/.docker/config.json {registry}"
        return f"{why}the registry wants a login, or has no such image. Check the name, or log in once: {login}"
    if any(mark in last for mark in _UNKNOWN):
        return f"{why}the registry has no such image. Check its name and tag."
    if any(mark in last for mark in _DAMAGED):
        told = f"what came is not what was asked for. Push it again, or tell who runs {registry}."
        return f"{why}{told} {_last_line(said)}"
    return f"{why}{_last_line(said) or 'the tool said nothing'}"


def explain_signature_refusal(said: str) -> str | None:
    """Which rule of the node on signatures refuses an image, and what to do; None: none does."""
    last = said.lower()
    if words := next((words for mark, words in _REFUSED if mark in last), None):
        return words
    if not any(mark in last for mark in _RULES):
        return None
    told = "the node's rules on signatures cannot be followed; tell an admin"
    return f"{told}: /etc/containers/policy.json. {_last_line(said)}"


def _last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:500] if lines else ""
