"""Jobs, their requests, attempts and placements; mounts; jobs and wait reasons of an engine with its own queue."""

import math
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from heliostat.models.dependencies import Dependency, ParentReference
from heliostat.models.environments import EnvironmentSpec
from heliostat.models.gpu_types import card_fraction
from heliostat.models.provenance import SourceCode
from heliostat.models.quantities import ArrayRange
from heliostat.models.retries import DEFAULT_RETRY_POLICY, RetryPolicy
from heliostat.models.states import TERMINAL_STATES, JobState
from heliostat.models.workflows import WorkflowMembership

JobId = int
AttemptId = str
"""`12.1` is the first attempt of job 12."""

PRIORITY_CLASSES = ("scavenger", "normal", "interactive", "urgent")
"""Names of the priority classes; the scheduling policy defines their rules."""
CONTAINER_NETWORKS = ("host", "private", "none")
"""Networks of a container: the node's; the same, from its own address; none."""
ALWAYS_PREEMPTIBLE_CLASSES = frozenset({"scavenger"})

_FORBIDDEN = set(":,\"\\'*?[]")  # each has a special meaning in some container tool
_MAX_PATH_LENGTH = 4000
_RESERVED = ("/proc", "/sys", "/dev")  # provided by the container runtime


def format_attempt_id(job_id: JobId, number: int) -> AttemptId:
    return f"{job_id}.{number}"


def job_id_of_attempt(attempt_id: AttemptId) -> JobId:
    return int(attempt_id.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources of a task while it runs."""

    cpus: int = 1
    memory_mib: int = 1024
    gpus: float = 0  # a whole number, or a fraction of one device: 0.5
    gpu_type: str | None = None  # None: any type
    gpu_memory_mib: int | None = None  # minimum of each device

    @property
    def device_count(self) -> int:
        """Number of devices, also if only a fraction of one is used."""
        return math.ceil(self.gpus)

    @property
    def cards(self) -> float:
        """The number of GPUs in sums: a MIG slice counts as its part of a card."""
        return self.gpus * card_fraction(self.gpu_type)


class TaskLayout(StrEnum):
    """Distribution of the tasks of a job over nodes."""

    PACK = "pack"  # on as few nodes as possible
    SPREAD = "spread"  # one task per node


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Placement constraints of a job besides its resources."""

    tasks: int = 1  # parallel tasks that start together; `Resources` are per task
    layout: TaskLayout = TaskLayout.PACK
    exclusive: bool = False  # no other job on its nodes
    labels: tuple[str, ...] = ()  # required of its nodes: "fast", "disk=ssd"
    reservation: str | None = None  # it runs only during this reservation, on its nodes


@dataclass(frozen=True, slots=True)
class TaskPlacement:
    """Node and devices of one task."""

    node: str
    devices: tuple[str, ...] = ()  # uuids


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the node that is visible in a container."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        """`/data/scans:/scans:ro`."""
        return f"{self.source}:{self.target}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, slots=True)
class JobSpec:
    """The part of a job that only its engine needs. Private to the owner: env may contain secrets."""

    command: tuple[str, ...] = ()  # argv; with a script, its arguments
    script: str | None = None  # text of a script to run, starting with its shebang
    workdir: str | None = None  # None: a new private folder of the job
    env: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 10.0  # between the first signal and KILL
    preempt_signal: str = "TERM"  # sent before preemption
    image: str | None = None  # of the container it runs in
    runtime: str | None = None  # isolation; None: the default set by the admins
    mounts: tuple[Mount, ...] = ()
    network: str | None = None  # host, private, none; None: the first one allowed
    upload: str | None = None  # id of the uploaded tree that becomes its working directory
    template: str | None = None  # launcher of its command in each task: torchrun, mpi, spark

    @property
    def uses_container(self) -> bool:
        return self.image is not None or self.runtime not in (None, "process")


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A submission. None: use the default."""

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
    max_retries: int = 0
    array: ArrayRange | None = None
    after: tuple[ParentReference, ...] = ()  # jobs it waits for
    begin: datetime | timedelta | None = None  # earliest start; an interval counts from the submission
    code: SourceCode | None = field(default=None, repr=False)  # at submission
    rerun_of: JobId | None = None  # the job it repeats
    environment: EnvironmentSpec | str | None = None  # its software, or the digest of an existing environment
    retry: RetryPolicy = DEFAULT_RETRY_POLICY
    notify: tuple[str, ...] = ()  # events of which its owner is notified
    kind: str = "batch"  # or session
    tools: EnvironmentSpec | None = None  # a second environment that starts it; also built for it


@dataclass(frozen=True, slots=True)
class Job:
    """A job with its current state."""

    id: JobId
    kind: str  # batch, session, service, build
    name: str
    state: JobState
    user: str
    unix_user: str  # of its processes
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
    reason: str | None = None  # why it waits, or why it ended
    stop_requested: str | None = None  # cancel, kill, requeue, preempt or overtime, while it is being stopped
    placement: PlacementRequest = PlacementRequest()
    places: tuple[TaskPlacement, ...] = ()  # of a job with several tasks: one for each
    priority_class: str = "normal"
    preemptible: bool = False  # may be requeued for jobs of a higher class
    preemptions: int = 0  # how often it was preempted
    overtime: bool = False  # may exceed its time limit while no other job needs the resources
    checkpointed_at: datetime | None = None  # its last checkpoint; earlier work is not lost by a stop
    priority_everywhere: bool = False  # set by an admin: counts in the whole cluster, not only in its project
    waited_seconds: float = 0.0  # in the queue, before its current wait; held and running time do not count
    waits_since: datetime | None = None  # start of its current wait; None: since its submission, if it waits
    booked_at: datetime | None = None  # when the resources for its start were booked
    dispatched: bool = False  # while pending: its newest attempt waits in the engine's own queue
    origin: str | None = None  # of an imported job that ran elsewhere: "slurm:CLUSTER:NUMBER"
    after: tuple[Dependency, ...] = ()  # jobs it waits for, including ended ones
    parents_left: int = 0  # how many of these are unfinished; it enters the queue when this is 0
    begin_at: datetime | None = None  # it does not enter the queue before
    environment: str | None = None  # digest of its environment; of a build job: of the one it builds
    retry: RetryPolicy = DEFAULT_RETRY_POLICY
    notify: tuple[str, ...] = ()  # events of which its owner is notified
    part: WorkflowMembership | None = None  # its role in a workflow or a sweep
    credit_gpu_hours: float = 0.0  # not charged to its user, who gave idle GPUs back early

    @property
    def task_placements(self) -> tuple[TaskPlacement, ...]:
        """Placement of each task, also for a single task; empty while the job does not run."""
        return self.places or (() if self.node is None else (TaskPlacement(self.node, self.devices),))

    def queue_wait_seconds(self, now: datetime) -> float:
        """Time in the queue until `now`."""
        if self.state is not JobState.PENDING or self.parents_left:
            return self.waited_seconds
        return self.waited_seconds + max(0.0, (now - self.queued_since).total_seconds())

    @property
    def queued_since(self) -> datetime:
        """Start of its current wait. Waiting for a parent or for `begin_at` does not count."""
        since = self.waits_since or self.submitted_at
        return since if self.begin_at is None else max(since, self.begin_at)

    @property
    def is_booked(self) -> bool:
        """It keeps its place at the head of the queue. A booking of an earlier wait does not count."""
        is_pending = self.state is JobState.PENDING
        return is_pending and self.booked_at is not None and self.booked_at >= self.queued_since

    def is_eligible(self, now: datetime) -> bool:
        """Its parents have ended and `begin_at` has passed."""
        return not self.parents_left and (self.begin_at is None or self.begin_at <= now)

    @property
    def origin_system(self) -> str | None:
        """The system from which it was imported: "slurm"; None: it was not imported."""
        return None if self.origin is None else self.origin.partition(":")[0]

    @property
    def origin_job_number(self) -> str | None:
        """Its number in that system."""
        return None if self.origin is None else self.origin.rpartition(":")[2]

    @property
    def attempt_id(self) -> AttemptId:
        return format_attempt_id(self.id, self.attempt)

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL_STATES


@dataclass(frozen=True, slots=True)
class Attempt:
    """One execution of a job, with everything that an engine needs to run it."""

    id: AttemptId
    job: Job
    node: str
    devices: tuple[str, ...] = ()  # uuids
    places: tuple[TaskPlacement, ...] = ()  # of a job with several tasks: one for each
    gpu_type: str | None = None  # of its devices
    data_class: int = 0  # of its project; set for engines that choose the nodes

    @property
    def task_placements(self) -> tuple[TaskPlacement, ...]:
        """Placement of each task, also for a single task."""
        return self.places or (TaskPlacement(self.node, self.devices),)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The stored history of an attempt."""

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
    gpu_type: str | None = None  # of its devices


def parse_mount(text: str) -> Mount:
    """`SRC:DST[:ro]`, or `SRC[:ro]` for the same path in the container. Raises ValueError."""
    words = text.split(":")
    mode = words.pop() if len(words) > 1 and words[-1] in ("ro", "rw") else "rw"
    if len(words) not in (1, 2):
        raise ValueError("write SRC:DST or SRC:DST:ro")
    mount = Mount(words[0], words[-1], mode == "ro")
    for path in (mount.source, mount.target):
        check_mount_path(path)
    if mount.target == "/" or any(f"{mount.target}/".startswith(f"{path}/") for path in _RESERVED):
        raise ValueError(f"nothing can be mounted at {mount.target}")
    return Mount(posixpath.normpath(mount.source), mount.target.rstrip("/"), mount.read_only)


def check_mount_path(path: str) -> None:
    """Raises ValueError unless every container tool parses this path correctly."""
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"{path[:100]!a} must be an absolute path")
    if len(path) > _MAX_PATH_LENGTH or not path.isprintable() or _FORBIDDEN & set(path):
        raise ValueError(
            f"{path[:100]!a} must have at most {_MAX_PATH_LENGTH} printable characters, none of "
            f"{' '.join(sorted(_FORBIDDEN))}"
        )
    if posixpath.normpath(path) != path.rstrip("/") and path != "/":
        raise ValueError(f"{path[:100]!a} must not contain . or ..")


@dataclass(frozen=True, slots=True)
class WaitReason:
    """Why an attempt waits, and its planned start."""

    reason: str
    kind: str  # priority, resources, nodes, quota, reservation, array, held, dependency, begin_time, suspended,
    # engine_unavailable, paused, other
    position: int | None = None  # 1: next; None: it has none, for example while held
    queue_length: int | None = None  # number of waiting jobs
    starts_at: datetime | None = None  # planned by the engine
    planned_by: str = ""  # name of the planner


@dataclass(frozen=True, slots=True)
class EngineOutage:
    """The engine's own queue does not answer."""

    name: str  # Slurm
    since: datetime  # its last answer
    reason: str

    def __str__(self) -> str:
        return f"{self.name} has not answered since {self.since:%Y-%m-%d %H:%M:%S} UTC"


@dataclass(frozen=True, slots=True)
class ForeignJob:
    """A job that was not submitted through Heliostat. Text from its owner must be printable here."""

    id: str  # slurm:1234
    user: str
    name: str | None  # None: hidden from the caller
    state: str  # pending, running, suspended, completing
    reason: str | None  # why it waits
    cpus: int
    memory_mib: int
    gpus: int
    tasks: int  # number of jobs it represents: a waiting array is one entry
    places: tuple[TaskPlacement, ...]  # its nodes, and its devices there, if known
    submitted_at: datetime | None
    started_at: datetime | None
    time_limit_seconds: int | None
    cancel_command: str  # the command that ends it
