"""What every runtime promises: from a task to the words that run it, isolated. Pure.

The tool always runs as the job's user, in the attempt's cgroup: nobody is root outside, and what limits, counts
and ends plain processes does so here. Values of variables may be secrets and are on no command line: they are
exported to the tool, or sealed into a text on `SEALED_DESCRIPTOR`. A variable that the tool itself would heed is
never exported to it: it is the container's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from heliostat.models import Mount

SEALED_DESCRIPTOR = 7
LOCK_DESCRIPTOR = 8
SEALED_PATH = f"/proc/self/fd/{SEALED_DESCRIPTOR}"
TOOL_PATH = "/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


class UnsupportedByRuntime(Exception):
    """This runtime cannot do what the job asks for; says what."""


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """The Unix user the tool runs as, who is the same inside."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_root(self) -> bool:
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class ContainerTask:
    """What is to run inside."""

    argv: tuple[str, ...]
    workdir: str  # there inside too
    user: ContainerUser
    image: str | None = None  # a full name: docker.io/library/python:3.11
    network: str = "host"
    image_archive: str | None = None  # the file that holds the image, of one that was built here
    digest_file: str | None = None  # where the tool's side notes what the image is


@dataclass(frozen=True, slots=True)
class ContainerVariables:
    """Variables of the container."""

    common: Mapping[str, str]  # may be secret
    per_task: Mapping[str, str] = field(default_factory=dict)  # differ between the tasks of a gang; never secret


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Those of the job's cgroup, for tools that would set others."""

    memory_mib: int
    cpus: int
    pids: int
    open_files: int | str = 1024  # of one process, and
    processes: int | str = 4096  # of one user: what is set already, and cannot be raised


@dataclass(frozen=True, slots=True)
class ContainerIsolation:
    """What the admins want of every container, and where this one may keep its things."""

    image_store: str  # images of this user
    scratch_folder: str  # what the container writes; goes with the attempt
    runtime_folder: str  # short, and empty after a boot
    read_only_root: bool = False
    oci_runtime: str = "runc"  # crun, kata…
    cgroup_parent: str | None = None  # where a tool that makes cgroups must make them
    device_files: tuple[str, ...] = ()  # of the GPUs it was given, for tools that do not know their uuids
    tool_variables: Mapping[str, str] = field(default_factory=dict)  # of the node: where the tool is configured


@dataclass(frozen=True, slots=True)
class RuntimeCommand:
    """The words, and what goes with them."""

    argv: tuple[str, ...]
    tool_variables: Mapping[str, str] = field(default_factory=dict)  # the tool's own and what it passes on
    task_variables: Mapping[str, str] = field(default_factory=dict)  # the same, of this task
    sealed_content: bytes = b""  # on SEALED_DESCRIPTOR, opened anew by each task; empty: nothing
    setup_line: str = ""  # a line of shell, run before; its failure ends the attempt
    lock_file: str = ""  # a file that is locked, shared, as long as it runs: nobody takes away what it stands for


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """All a runtime needs to know."""

    task: ContainerTask
    variables: ContainerVariables
    mounts: tuple[Mount, ...]
    devices: tuple[str, ...]  # uuids of GPUs
    limits: ContainerLimits
    isolation: ContainerIsolation


class Runtime(Protocol):
    name: str
    needs_image: bool
    program: str  # that must be on the node; empty: none

    def make_command(self, asked: ContainerSpec) -> RuntimeCommand:
        """Raises CannotContain."""
