"""Input and output of the planner: the snapshot of the cluster, and the plan. Plain data."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import numpy as np

from heliostat.models import Job, JobId, Reservation, TaskPlacement
from heliostat.scheduling.fair_share_tree import FairShareTree
from heliostat.scheduling.free_resources import FreeResources
from heliostat.scheduling.job_shape import JobShape
from heliostat.scheduling.keyed_array import Array
from heliostat.scheduling.node_table import LargestFree, NodeTable
from heliostat.scheduling.share_accounts import ShareAccounts

PENDING_DTYPE = np.dtype(
    [
        ("job", np.int64),
        ("class_points", np.float64),  # see queue_order
        ("manager_points", np.float64),
        ("rate", np.float64),  # charge per second
        ("expected", np.float64),  # run time; changes when a similar job has ended
        ("similar", np.int64),  # equal for similar jobs
        ("waiting", np.float64),  # start of the wait; earlier waits of the job are added
        ("limit", np.float64),
        ("shape", np.int32),
        ("leaf", np.int32),
        ("rank", np.int8),
        ("preemptible", np.bool_),
        ("gpus", np.float64),  # of all its tasks
        ("advance", np.float64),  # GPU-hours charged for it in advance
        ("array", np.int64),  # -1: none
        ("booked", np.float64),  # time of its booking; inf: none
    ]
)
RUNNING_DTYPE = np.dtype(
    [
        ("job", np.int64),
        ("node", np.int32),
        ("kind", np.int32),  # of device; -1: none
        ("devices", np.int32),  # whole devices
        ("cpus", np.int64),
        ("memory", np.int64),
        ("started", np.float64),
        ("limit", np.float64),
        ("has_limit", np.bool_),
        ("leaf", np.int32),
        ("rank", np.int8),
        ("gpus", np.float64),
        ("rate", np.float64),  # charge per second
        ("saved", np.float64),  # time of the last checkpoint; nan: none
        ("preemptible", np.bool_),
        ("protected", np.float64),  # no preemption before this time
        ("overtime", np.bool_),  # may exceed its time limit
        ("stops_in", np.float64),  # seconds of grace after a stop was requested; inf: not requested
        ("array", np.int64),
        ("waiting", np.float64),  # start of the wait before it started, as for pending jobs
    ]
)


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one time. A running job has one row per node and kind of device."""

    node_table: NodeTable
    pending: Array  # of PENDING_DTYPE, unordered
    running: Array  # of RUNNING_DTYPE
    jobs: Mapping[JobId, Job]  # at least those of the rows
    shapes: Sequence[JobShape]  # by number
    share_tree: FairShareTree
    free: FreeResources  # by node
    past_usage: Array  # by leaf: decayed usage without running jobs
    current_usage: Callable[[Array], Array]  # usage by running row, with what is charged in advance
    reserved_usage: Callable[[Array], Array]  # the part of it that is not used yet
    held_devices: Mapping[str, JobId]  # whole devices in use, and their jobs
    shared_device_use: Mapping[str, float] = field(default_factory=dict)  # used fraction of each shared device
    accounts: ShareAccounts = field(default_factory=ShareAccounts)
    reservations: tuple[Reservation, ...] = ()
    month_gpu_hours: Mapping[tuple[str, str], float] = field(default_factory=dict)  # by (scope, name)
    month_start: float = 0.0
    has_array_or_budget_limits: bool = False  # of at least one pending job
    next_begin_at: datetime | None = None  # next time at which a job becomes eligible without an event

    @cached_property
    def has_preemptible(self) -> bool:
        """Whether any running job could be stopped for another one."""
        return bool((self.running["preemptible"] | self.running["overtime"]).any())

    @cached_property
    def largest_free(self) -> LargestFree:
        return LargestFree.from_free(self.node_table, self.free)

    @cached_property
    def usage_by_leaf(self) -> Array:
        """By leaf: decayed past usage, and usage of running jobs with what is charged in advance."""
        if not len(self.running):
            return self.past_usage
        present = self.current_usage(self.running)
        return self.past_usage + np.bincount(self.running["leaf"], present, len(self.past_usage))

    @cached_property
    def reserved_by_leaf(self) -> Array:
        """By leaf: what running jobs are charged in advance."""
        return np.bincount(self.running["leaf"], self.reserved_usage(self.running), len(self.past_usage))


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A job to start, and the placement of its tasks."""

    job: Job
    places: tuple[TaskPlacement, ...]
    gpu_type: str | None = None

    @property
    def node(self) -> str:
        return self.places[0].node

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(uuid for place in self.places for uuid in place.devices)


@dataclass(frozen=True, slots=True)
class PlannedStop:
    """A running job to stop, because another job needs its resources."""

    job: Job
    kind: str  # "preempt": it returns to the queue; "overtime": it ends
    message: str
    for_job_id: JobId


@dataclass(frozen=True, slots=True)
class BookedStart:
    """A blocked job with booked resources."""

    job_id: JobId
    starts_at: datetime  # latest start if no job exceeds its time limit; approximate for all but the first
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """The jobs to start and to stop now."""

    starts: tuple[PlannedStart, ...] = ()
    stops: tuple[PlannedStop, ...] = ()
    wake_at: datetime | None = None  # when to plan again without an event
    new_bookings: tuple[JobId, ...] = ()  # jobs that keep the head of the queue from now on
    withdrawn_bookings: tuple[JobId, ...] = ()  # jobs that cannot start even with their booking
    compute_booked_starts: Callable[[], tuple[BookedStart, ...]] = field(default=tuple, compare=False)

    @cached_property
    def booked_starts(self) -> tuple[BookedStart, ...]:
        """Bookings of the first blocked jobs. Computed on demand if they do not affect the plan."""
        return self.compute_booked_starts()
