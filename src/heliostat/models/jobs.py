"""What someone asked to run, and each execution of it; and what an engine with a queue of its own says of jobs."""

import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from heliostat.models.dependencies import Dependency, ParentReference
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.provenance import SourceCode
from heliostat.models.quantities import ArrayRange
from heliostat.models.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from heliostat.models.states import TERMINAL_STATES, JobState
from heliostat.models.workflows import WorkflowMembership

JobId = int
AttemptId = str
"""`12.1` is the first attempt of job 12."""

PRIORITY_CLASSES = ("scavenger", "normal", "interactive", "urgent")
"""The names; what each may do is the policy's."""
CONTAINER_NETWORKS = ("host", "private", "none")
"""What a contained job may reach: what the node reaches; the same from an address of its own; nothing."""
ALWAYS_PREEMPTIBLE_CLASSES = frozenset({"scavenger"})

_UNREADABLE = set(":,\"\\'*?[]")  # some tool gives each of these a meaning of its own
_LONGEST = 4000
_TAKEN = ("/proc", "/sys", "/dev")  # where a container has its own


def format_attempt_id(job_id: JobId, number: int) -> AttemptId:
    return f"{job_id}.{number}"


def job_id_of_attempt(attempt_id: AttemptId) -> JobId:
    return int(attempt_id.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Resources:
    """What a task holds while it runs."""

    cpus: int = 1
    memory_mib: int = 1024
    gpus: float = 0  # a whole number, or a part of one device: 0.5
    gpu_type: str | None = None  # None: any type will do
    gpu_memory_mib: int | None = None  # the least each device must have

    @property
    def device_count(self) -> int:
        """How many devices that touches."""
        return math.ceil(self.gpus)


class TaskLayout(StrEnum):
    """How the tasks of a job lie on nodes."""

    PACK = "pack"  # on as few as possible
    SPREAD = "spread"  # each on a node of its own


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Where a job may run, besides having room."""

    tasks: int = 1  # parallel members that start together or not at all; `Resources` are those of one
    layout: TaskLayout = TaskLayout.PACK
    exclusive: bool = False  # nobody else on its nodes
    labels: tuple[str, ...] = ()  # that its nodes must have: "fast", "disk=ssd"
    reservation: str | None = None  # that it runs inside: while it holds, on its nodes


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Where one task runs."""

    node: str
    devices: tuple[str, ...] = ()  # uuids


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the node that a contained job sees."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        """As people write it: `/data/scans:/scans:ro`."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The part of a job only its engine reads. Private to the owner: env may hold secrets."""

    command: tuple[str, ...] = ()  # argv; with a script, its arguments
    script: str | None = None  # text of a script to run, starting with its shebang
    workdir: str | None = None  # None: a fresh private folder of the job
    env: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 10.0  # between the first signal and KILL
    preempt_signal: str = "TERM"  # what tells it to save its work and go
    image: str | None = None  # of the container it runs in
    runtime: str | None = None  # how it is isolated; None: as the admins have chosen
    mounts: tuple[Mount, ...] = ()
    network: str | None = None  # host, private, none; None: the first the admins allow
    upload: str | None = None  # code that becomes its working directory: the id of a tree its user uploaded
    template: str | None = None  # torchrun, mpi, spark: what starts its command in each task

    @property
    def uses_container(self) -> bool:
        return self.image is not None or self.runtime not in (None, "process")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A submission. None means: use the default."""

    spec: JobSpec
    name: str | None = None
    project: str | None = None
    cpus: int | None = None
    memory_mib: int | None = None
    gpus: float = 0
    gpu_type: str | None = None
    gpu_memory_mib: int | None = None
    placement: PlacementRequest = PlacementRequest()
    time_limit_seconds: int | None = None
    priority: int = 0
    priority_class: str = "normal"
    preemptible: bool = False
    overtime: bool = False
    held: bool = False
    max_retries: int = 0  # how often an attempt is followed by another one
    array: ArrayRange | None = None
    after: tuple[ParentReference, ...] = ()  # whom it waits for
    begin: datetime | timedelta | None = None  # not before; an interval counts from when it is submitted
    code: SourceCode | None = field(default=None, repr=False)  # what it was submitted with
    rerun_of: JobId | None = None  # the job it repeats
    environment: EnvironmentSpec | str | None = None  # its software, or the digest of one that is known
    retry: RetryPolicy = DEFAULT_RETRY_POLICY  # after which ends, and when
    notify: tuple[str, ...] = ()  # what its owner wants to be told of it
    kind: str = "batch"  # or session
    tools: EnvironmentSpec | None = None  # what starts it, beside its environment; built for it as well


@dataclass(frozen=True, slots=True)
class Job:
    """A job as everyone in Heliostat sees it."""

    id: JobId
    kind: str  # batch, session, service, build
    name: str
    state: JobState
    user: str
    unix_user: str  # whom its processes run as
    project: str
    resources: Resources
    spec: JobSpec
    submitted_at: datetime
    time_limit_seconds: int | None = None
    priority: int = 0
    max_retries: int = 0
    retries: int = 0
    array_id: int | None = None
    array_index: int | None = None
    array_limit: int | None = None
    attempt: int = 0  # number of the newest attempt; 0: none yet
    node: str | None = None
    devices: tuple[str, ...] = ()
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None  # why it waits, or why it ended as it did
    stop_requested: str | None = None  # cancel, kill, requeue, preempt or overtime, while it is being stopped
    placement: PlacementRequest = PlacementRequest()
    places: tuple[TaskPlacement, ...] = ()  # of a job of several tasks: where each runs
    priority_class: str = "normal"
    preemptible: bool = False  # may be sent back to the queue for those of a higher class
    preemptions: int = 0  # how often that happened
    overtime: bool = False  # may run past its limit while nobody waits for what it holds
    checkpointed_at: datetime | None = None  # what it did until then is not lost when it is stopped
    priority_everywhere: bool = False  # given by an admin: counts against all, not only within its project
    waited_seconds: float = 0.0  # in the queue, before its present wait; being held or running is not waiting
    waits_since: datetime | None = None  # its present wait; None: since it was submitted, if it waits
    dispatched: bool = False  # while it is pending: its newest attempt waits in the engine's own queue
    origin: str | None = None  # of one that ran elsewhere and was brought in as history: "slurm:CLUSTER:NUMBER"
    after: tuple[Dependency, ...] = ()  # whom it waits for, also when they are over
    parents_left: int = 0  # how many of these are not over; it takes its place in the queue when none is
    begin_at: datetime | None = None  # it takes its place in the queue not before
    environment: str | None = None  # the digest of the one it runs in; of a build, of the one it makes
    retry: RetryPolicy = DEFAULT_RETRY_POLICY  # after which ends it is tried again, and when
    notify: tuple[str, ...] = ()  # what its owner wants to be told of it
    part: WorkflowMembership | None = None  # what it is of a workflow or a sweep

    @property
    def task_placements(self) -> tuple[TaskPlacement, ...]:
        """Where each task runs, also when there is only one; none while it does not run."""
        return self.places or (() if self.node is None else (TaskPlacement(self.node, self.devices),))

    def queue_wait_seconds(self, now: datetime) -> float:
        """How many seconds it has stood in the queue by then."""
        if self.state is not JobState.PENDING or self.parents_left:
            return self.waited_seconds
        return self.waited_seconds + max(0.0, (now - self.queued_since).total_seconds())

    @property
    def queued_since(self) -> datetime:
        """When its present wait began: waiting for a parent, or for the time to begin, is no waiting in line."""
        since = self.waits_since or self.submitted_at
        return since if self.begin_at is None else max(since, self.begin_at)

    def is_eligible(self, now: datetime) -> bool:
        """Its parents are over and its time to begin has come."""
        return not self.parents_left and (self.begin_at is None or self.begin_at <= now)

    @property
    def origin_system(self) -> str | None:
        """The system it ran on before it was brought in: "slurm"; None: it is ours."""
        return None if self.origin is None else self.origin.partition(":")[0]

    @property
    def origin_job_number(self) -> str | None:
        """Its number there."""
        return None if self.origin is None else self.origin.rpartition(":")[2]

    @property
    def attempt_id(self) -> AttemptId:
        return format_attempt_id(self.id, self.attempt)

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a job: all an engine needs to carry it out."""

    id: AttemptId
    job: Job
    node: str
    devices: tuple[str, ...] = ()  # uuids
    places: tuple[TaskPlacement, ...] = ()  # of a job of several tasks: where each runs
    gpu_type: str | None = None  # of its devices
    data_class: int = 0  # of its project, when it is handed to an engine that chooses the nodes

    @property
    def task_placements(self) -> tuple[TaskPlacement, ...]:
        """Where each task runs, also when there is only one."""
        return self.places or (TaskPlacement(self.node, self.devices),)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What history keeps of an attempt."""

    job_id: JobId
    number: int
    node: str
    devices: tuple[str, ...]
    state: JobState
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    exit_code: int | None = None
    reason: str | None = None
    places: tuple[TaskPlacement, ...] = ()
    gpu_type: str | None = None  # of the devices it had


def parse_mount(text: str) -> Mount:
    """`SRC:DST[:ro]`, or `SRC[:ro]` for the same place inside. ValueError says what is wrong."""
    words = text.split(":")
    mode = words.pop() if len(words) > 1 and words[-1] in ("ro", "rw") else "rw"
    if len(words) not in (1, 2):
        raise ValueError("write SRC:DST or SRC:DST:ro")
    mount = Mount(words[0], words[-1], mode == "ro")
    for path in (mount.source, mount.target):
        check_mount_path(path)
    if mount.target == "/" or any(f"{mount.target}/".startswith(f"{one}/") for one in _TAKEN):
        raise ValueError(f"nothing can be mounted at {mount.target}")
    return Mount(posixpath.normpath(mount.source), mount.target.rstrip("/"), mount.read_only)


def check_mount_path(path: str) -> None:
    """Whether every tool reads this path as it is meant; ValueError says why not."""
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{path[:100]!a} must be an absolute path")
    if len(path) > _LONGEST or not path.isprintable() or _UNREADABLE & set(path):
        raise ValueError(f"{path[:100]!a} must be short and hold none of {' '.join(sorted(_UNREADABLE))}")
    if posixpath.normpath(path) != path.rstrip("/") and path != "/":
        raise ValueError(f"{path[:100]!a} must be written without . and ..")


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why an attempt does not go on, and when it will."""

    reason: str
    kind: str  # turn, room, nodes, quota, reservation, array, held, dependency, begin, suspended, away, other
    position: int | None = None  # 1: next; None: it has none, as long as it is held
    queue_length: int | None = None  # how many wait there
    starts_at: datetime | None = None  # as the engine plans now
    planned_by: str = ""  # whose plan that is


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """A job that was not submitted through us. What its owner wrote is made harmless before it comes here."""

    id: str  # slurm:1234
    user: str
    name: str | None  # None: not for whoever asks
    state: str  # pending, running, suspended, completing
    reason: str | None  # why it waits
    cpus: int
    memory_mib: int
    gpus: int
    tasks: int  # of how many jobs this stands for: an array that waits is one line
    places: tuple[TaskPlacement, ...]  # its nodes, and the devices it has there as far as they are known
    submitted_at: datetime | None
    started_at: datetime | None
    time_limit_seconds: int | None
    cancel_command: str  # the command that ends it
