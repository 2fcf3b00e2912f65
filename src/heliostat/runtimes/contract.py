"""The runtime interface: builds the command line that runs a task in isolation. Pure.

The container tool always runs as the job's user, in the attempt's cgroup: it is not root on the node, and limits,
accounting and kill work as for plain processes. Values of variables may be secrets and never appear on a command
line: they are exported to the tool, or passed as a sealed text on `SEALED_DESCRIPTOR`. A variable that would
change what the tool itself does is never exported to it, only sealed.
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
    """This runtime does not support what the job requests; the message is the reason."""


@dataclass(frozen=True, slots=True)
class ContainerUser:
    """The Unix user of the tool and of the processes in the container."""

    name: str
    uid: int
    gid: int
    home: str

    @property
    def is_root(self) -> bool:
        return self.uid == 0


@dataclass(frozen=True, slots=True)
class ContainerTask:
    """What runs in the container."""

    argv: tuple[str, ...]
    workdir: str  # the same path inside the container
    user: ContainerUser
    image: str | None = None  # a full name: docker.io/library/python:3.11
    network: str = "host"
    image_archive: str | None = None  # file of an image that was built here
    digest_file: str | None = None  # file into which the digest of the image is written


@dataclass(frozen=True, slots=True)
class ContainerVariables:
    """Environment variables of the container."""

    common: Mapping[str, str]  # may hold secrets
    per_task: Mapping[str, str] = field(default_factory=dict)  # differ between the tasks of a gang; no secrets


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """The limits of the job's cgroup, for tools that would otherwise set their own defaults."""

    memory_mib: int
    cpus: int
    pids: int
    open_files: int | str = 1024  # hard limit of one process; cannot be raised
    processes: int | str = 4096  # hard limit of one user; cannot be raised


@dataclass(frozen=True, slots=True)
class ContainerIsolation:
    """Isolation settings of the admins, and the folders of one container."""

    image_store: str  # images of this user
    scratch_folder: str  # what the container writes; removed with the attempt
    runtime_folder: str  # a short path; empty after a boot
    read_only_root: bool = False
    oci_runtime: str = "runc"  # crun, kata…
    cgroup_parent: str | None = None  # for tools that create cgroups
    device_files: tuple[str, ...] = ()  # of the allocated GPUs, for tools that do not support GPU uuids
    tool_variables: Mapping[str, str] = field(default_factory=dict)  # paths of the tool's configuration files


@dataclass(frozen=True, slots=True)
class RuntimeCommand:
    """A command line with its environment, sealed text, setup and lock."""

    argv: tuple[str, ...]
    tool_variables: Mapping[str, str] = field(default_factory=dict)  # for the tool, and those it passes on
    task_variables: Mapping[str, str] = field(default_factory=dict)  # the same, different for each task
    sealed_content: bytes = b""  # on SEALED_DESCRIPTOR, which each task opens again; empty: none
    setup_line: str = ""  # shell command to run first; its failure ends the attempt
    lock_file: str = ""  # locked (shared) while the task runs, so that its image is not removed


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """All inputs of a runtime."""

    task: ContainerTask
    variables: ContainerVariables
    mounts: tuple[Mount, ...]
    devices: tuple[str, ...]  # uuids of GPUs
    limits: ContainerLimits
    isolation: ContainerIsolation


class Runtime(Protocol):
    name: str
    needs_image: bool
    program: str  # that must be installed on the node; empty: none

    def make_command(self, spec: ContainerSpec) -> RuntimeCommand:
        """Raises UnsupportedByRuntime."""
