"""The software a job sees, named by its contents. Pure."""

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from heliostat.models.states import TERMINAL, WAITING, JobState

KINDS = ("requirements", "pyproject", "uv", "conda")
"""A list of requirements; those of a project; the same, locked by uv; a conda file."""
MOST_CHARACTERS = 2 * 2**20  # of all files of one together
SHORTEST_PREFIX = 8  # of a digest, that still names it
BUILD = "build"  # the kind of job that makes one
IMAGE_BUILD = "image"  # the same, of an image
PUSH = "push"  # the kind of job that brings an image to a registry
BUILDS = (BUILD, IMAGE_BUILD)
OUR_SCRIPTS = (*BUILDS, PUSH)  # kinds of jobs whose script is ours, not a person's
IMAGES = ("image", "definition")  # further kinds: by a Containerfile; by a definition file of apptainer
CANNOT_BUILD = "its environment cannot be built: "
"""How the reason of a failed build begins, and with it that of every job that waited for it."""


class EnvironmentState(StrEnum):
    WAITING = "waiting"  # to be built
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"  # its build is over; who asks again has it built again


@dataclass(frozen=True, slots=True)
class Software:
    """What somebody asks for: the files, as they were written."""

    kind: str
    files: tuple[tuple[str, str], ...]  # name and text
    python: str | None = None  # "3.11"; None: what the files say, or the usual one

    def text(self, name: str) -> str:
        return dict(self.files)[name]


@dataclass(frozen=True, slots=True)
class Environment:
    """One that is built once, for everybody who asks for the same."""

    digest: str  # of its contents: its name
    software: Software  # checked and in a normal form; its Python is decided
    platform: str
    owner: str | None  # whose alone it is; None: everybody's
    made_by: str  # who asked first
    created_at: datetime
    build_job: int
    lock: str | None = None  # what was installed, exactly
    size_bytes: int | None = None
    used_at: datetime | None = None  # when somebody asked for it last


def digest_of(software: Software, platform: str, owner: str | None) -> str:
    """The same for the same contents, Python and platform; another one for each owner."""
    parts = [software.kind, software.files, software.python, platform, owner]
    return hashlib.sha256(json.dumps(parts).encode("utf-8", "surrogatepass")).hexdigest()


def state_after(build: JobState | None) -> EnvironmentState:
    """What the state of its build job says; None: there is no such job any more."""
    if build is None or (build in TERMINAL and build is not JobState.COMPLETED):
        return EnvironmentState.FAILED
    if build is JobState.COMPLETED:
        return EnvironmentState.READY
    return EnvironmentState.WAITING if build in WAITING else EnvironmentState.BUILDING
