"""Provenance of jobs, so that they can be repeated: source code, and nodes and software of each attempt."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlsplit, urlunsplit

MAX_DIFF_BYTES = 256 * 1024
MAX_UNTRACKED_FILES = 200
_DIGEST_MARK = "@sha256:"
COMPARISON_SECTIONS = {  # of two jobs, with their headings
    "request": "Request",
    "environment": "Environment variables",
    "code": "Code",
    "machine": "Node and software",
    "result": "Result",
    "time": "Time",
}


@dataclass(frozen=True, slots=True)
class SourceCode:
    """The git state of a folder; without git, only its path."""

    folder: str | None = None
    commit: str | None = None
    branch: str | None = None
    remote: str | None = None  # without credentials
    diff: str = ""  # uncommitted changes
    is_diff_cut: bool = False  # it was longer
    untracked: tuple[str, ...] = ()  # the first untracked files
    untracked_count: int = 0

    @property
    def is_clean(self) -> bool:
        """The commit contains the whole state."""
        return self.commit is not None and not self.diff and not self.untracked_count


@dataclass(frozen=True, slots=True)
class AttemptEnvironment:
    """Nodes and software of an attempt at its start."""

    nodes: tuple[str, ...]
    gpus: tuple[str, ...] = ()  # their names: "NVIDIA A100-SXM4-80GB"
    driver: str | None = None
    image_digest: str | None = None
    environment: str | None = None  # digest of its environment
    heliostat: str = ""  # the version
    datasets: tuple[str, ...] = ()  # mounted shared datasets: "/data/scans version 2"


@dataclass(frozen=True, slots=True)
class JobProvenance:
    """The data needed to repeat a job, besides its request."""

    job_id: int
    code: SourceCode | None = None  # None: not recorded
    attempt_environments: tuple[tuple[int, AttemptEnvironment], ...] = ()  # of each started attempt
    rerun_of: int | None = None

    @property
    def latest_environment(self) -> AttemptEnvironment | None:
        """Of the newest attempt."""
        return self.attempt_environments[-1][1] if self.attempt_environments else None


def provenance_to_text(record: SourceCode | AttemptEnvironment) -> str:
    """Equal for equal content."""
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
    """`https://anna:secret@host/x?token=1` becomes `https://host/x`. `git@host:x` contains no secret and stays."""
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
    """The digest in an image name, if it has one."""
    name, mark, digest = (image or "").partition(_DIGEST_MARK)
    return f"sha256:{digest}" if name and mark else None
