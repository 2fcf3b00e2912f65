"""Software environments of jobs, identified by a digest of their contents. Pure."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.states import TERMINAL_STATES, WAITING_STATES, JobState

PACKAGE_ENVIRONMENT_KINDS = ("requirements", "pyproject", "uv", "conda")
"""A list of requirements; those of a project; the same, locked by uv; a conda file."""
MAX_ENVIRONMENT_CHARACTERS = 2 * 2**20  # of all files together
MIN_DIGEST_PREFIX = 8  # characters of a digest that identify it
ENVIRONMENT_BUILD_JOB = "build"  # the kind of job that builds an environment
IMAGE_BUILD_JOB = "image"  # the kind of job that builds an image
IMAGE_PUSH_JOB = "push"  # the kind of job that pushes an image to a registry
BUILD_JOB_KINDS = (ENVIRONMENT_BUILD_JOB, IMAGE_BUILD_JOB)
INTERNAL_JOB_KINDS = (*BUILD_JOB_KINDS, IMAGE_PUSH_JOB)  # their script is part of Heliostat
IMAGE_ENVIRONMENT_KINDS = ("image", "definition")
"""Built from a Containerfile; built from a definition file of apptainer."""
BUILD_FAILURE_PREFIX = "its environment cannot be built: "
"""Start of the reason of a failed build, and of every job that waited for it."""


class EnvironmentState(StrEnum):
    WAITING = "waiting"  # to be built
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"  # the next request builds it again


@dataclass(frozen=True, slots=True)
class EnvironmentSpec:
    """A requested environment: the files as written by the user."""

    kind: str
    files: tuple[tuple[str, str], ...]  # name and text
    python: str | None = None  # "3.11"; None: from the files, or the default

    def file_text(self, name: str) -> str:
        return dict(self.files)[name]


@dataclass(frozen=True, slots=True)
class Environment:
    """An environment that is built once for all users who request the same."""

    digest: str  # of its contents; its id
    spec: EnvironmentSpec  # checked and normalized; its Python version is set
    platform: str
    owner: str | None  # of a private environment; None: shared
    created_by: str  # the first user who requested it
    created_at: datetime
    build_job: int
    lock: str | None = None  # exact versions of the installed packages
    size_bytes: int | None = None
    used_at: datetime | None = None  # the last request


def environment_digest(software: EnvironmentSpec, platform: str, owner: str | None) -> str:
    """Equal for equal contents, Python and platform; different for each owner."""
    parts = [software.kind, software.files, software.python, platform, owner]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def environment_state(build: JobState | None) -> EnvironmentState:
    """From the state of its build job; None: the job no longer exists."""
    if build is None or (build in TERMINAL_STATES and build is not JobState.COMPLETED):
        return EnvironmentState.FAILED
    if build is JobState.COMPLETED:
        return EnvironmentState.READY
    return EnvironmentState.WAITING if build in WAITING_STATES else EnvironmentState.BUILDING
