"""What is kept so that a job can be repeated: the code it was submitted with, the machines it ran on."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

MAX_DIFF_BYTES = 256 * 1024
MAX_UNTRACKED_FILES = 200
_DIGEST_MARK = "@sha256:"
COMPARISON_SECTIONS = {  # of two jobs: the parts, and how they are called
    "request": "What was asked for",
    "environment": "Environment variables",
    "code": "Code",
    "machine": "Machine",
    "result": "Result",
    "time": "Time",
}


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The state of a folder, as git tells it; without git, only where it is."""

    folder: str | None = None
    commit: str | None = None
    branch: str | None = None
    remote: str | None = None  # without credentials
    diff: str = ""  # of what is not committed
    is_diff_cut: bool = False  # there was more of it
    untracked: tuple[str, ...] = ()  # files git does not know, the first of them
    untracked_count: int = 0

    @property
    def is_clean(self) -> bool:
        """The commit says all there is to say."""
        return self.commit is not None and not self.diff and not self.untracked_count


@dataclass(frozen=True, slots=True)
class AttemptEnvironment:
    """What an attempt ran on, as it was when it started."""

    nodes: tuple[str, ...]
    gpus: tuple[str, ...] = ()  # their names: "NVIDIA A100-SXM4-80GB"
    driver: str | None = None
    image_digest: str | None = None
    environment: str | None = None  # the lock of its environment
    heliostat: str = ""  # the version
    datasets: tuple[str, ...] = ()  # "/data/scans version 2": what it mounted of what is everybody's


@dataclass(frozen=True, slots=True)
class JobProvenance:
    """All that is known of how to repeat a job, besides what it asked for."""

    job_id: int
    code: SourceCode | None = None  # None: nobody noted it
    attempt_environments: tuple[tuple[int, AttemptEnvironment], ...] = ()  # of each attempt that has started
    rerun_of: int | None = None

    @property
    def latest_environment(self) -> AttemptEnvironment | None:
        """Of the newest attempt."""
        return self.attempt_environments[-1][1] if self.attempt_environments else None


def provenance_to_text(record: SourceCode | AttemptEnvironment) -> str:
    """The same for the same content."""
    return json.dumps(asdict(record), sort_keys=True, separators=(",", ":"))


def provenance_id(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def text_to_source_code(text: str) -> SourceCode:
    values = json.loads(text)
    return SourceCode(**values | {"untracked": tuple(values["untracked"])})


def text_to_attempt_environment(text: str) -> AttemptEnvironment:
    values: dict[str, Any] = json.loads(text)
    lists = {name: tuple(values.get(name, ())) for name in ("nodes", "gpus", "datasets")}
    return AttemptEnvironment(**values | lists)


def remove_credentials(remote: str) -> str:
    """`https://anna:secret@host/x?token=1` is `https://host/x`. `git@host:x` names no secret and stays."""
    if "://" not in remote:
        return remote.partition("?")[0]
    try:
        parts = urlsplit(remote)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return ""
    user = f"{parts.username}@" if parts.scheme in ("ssh", "git+ssh") and parts.username else ""
    return urlunsplit((parts.scheme, f"{user}{parts.hostname or ''}{port}", parts.path, "", ""))


def find_image_digest(image: str | None) -> str | None:
    """That an image is named by."""
    name, mark, digest = (image or "").partition(_DIGEST_MARK)
    return f"sha256:{digest}" if name and mark else None
