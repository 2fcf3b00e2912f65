"""The software a job sees, named by its contents. Pure."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.states import TERMINAL_STATES, WAITING_STATES, JobState

PACKAGE_ENVIRONMENT_KINDS = ("requirements", "pyproject", "uv", "conda")
"""A list of requirements; those of a project; the same, locked by uv; a conda file."""
MAX_ENVIRONMENT_CHARACTERS = 2 * 2**20  # of all files of one together
MIN_DIGEST_PREFIX = 8  # of a digest, that still names it
ENVIRONMENT_BUILD_JOB = "build"  # the kind of job that makes one
IMAGE_BUILD_JOB = "image"  # the same, of an image
IMAGE_PUSH_JOB = "push"  # the kind of job that brings an image to a registry
BUILD_JOB_KINDS = (ENVIRONMENT_BUILD_JOB, IMAGE_BUILD_JOB)
INTERNAL_JOB_KINDS = (*BUILD_JOB_KINDS, IMAGE_PUSH_JOB)  # kinds of jobs whose script is ours, not a person's
IMAGE_ENVIRONMENT_KINDS = (
    "image",
    "definition",
)  # further kinds: by a Containerfile; by a definition file of apptainer
BUILD_FAILURE_PREFIX = "its environment cannot be built: "
"""How the reason of a failed build begins, and with it that of every job that waited for it."""


class EnvironmentState(StrEnum):
    WAITING = "waiting"  # to be built
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"  # its build is over; who asks again has it built again


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """What somebody asks for: the files, as they were written."""

    kind: str
    files: tuple[tuple[str, str], ...]  # name and text
    python: str | None = None  # "3.11"; None: what the files say, or the usual one

    def file_text(self, name: str) -> str:
        return dict(self.files)[name]


@dataclass(frozen=True, slots=True)
class Environment:
    """One that is built once, for everybody who asks for the same."""

    digest: str  # of its contents: its name
    spec: EnvironmentSpec  # checked and in a normal form; its Python is decided
    platform: str
    owner: str | None  # whose alone it is; None: everybody's
    created_by: str  # who asked first
    created_at: datetime
    build_job: int
    lock: str | None = None  # what was installed, exactly
    size_bytes: int | None = None
    used_at: datetime | None = None  # when somebody asked for it last


def environment_digest(software: EnvironmentSpec, platform: str, owner: str | None) -> str:
    """The same for the same contents, Python and platform; another one for each owner."""
    parts = [software.kind, software.files, software.python, platform, owner]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def environment_state(build: JobState | None) -> EnvironmentState:
    """What the state of its build job says; None: there is no such job any more."""
    if build is None or (build in TERMINAL_STATES and build is not JobState.COMPLETED):
        return EnvironmentState.FAILED
    if build is JobState.COMPLETED:
        return EnvironmentState.READY
    return EnvironmentState.WAITING if build in WAITING_STATES else EnvironmentState.BUILDING
