"""What a decision is made from, and the decision. Plain data: no clock, no database, no network."""

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
        ("points", np.float64),  # that do not change: see order.py
        ("inner", np.float64),  # points that count only within its project and class
        ("waiting", np.float64),  # since when, if it had waited without a break
        ("limit", np.float64),
        ("shape", np.int32),
        ("leaf", np.int32),
        ("rank", np.int8),
        ("preemptible", np.bool_),
        ("gpus", np.float64),  # of all its tasks
        ("cost", np.float64),  # GPU-hours it would be charged for if it ran to its limit
        ("array", np.int64),  # -1: none
    ]
)
RUNNING_DTYPE = np.dtype(
    [
        ("job", np.int64),
        ("node", np.int32),
        ("kind", np.int32),  # of device; -1: none
        ("devices", np.int32),  # held whole
        ("cpus", np.int64),
        ("memory", np.int64),
        ("started", np.float64),
        ("limit", np.float64),
        ("has_limit", np.bool_),
        ("leaf", np.int32),
        ("rank", np.int8),
        ("gpus", np.float64),
        ("rate", np.float64),  # what a second is charged
        ("saved", np.float64),  # when its work was last saved; nan: never
        ("preemptible", np.bool_),
        ("protected", np.float64),  # until then it may not be sent away all the same
        ("overtime", np.bool_),
        ("stops_in", np.float64),  # seconds of grace once it has been asked to stop; inf: not asked
        ("array", np.int64),
    ]
)


@dataclass(frozen=True)
class Snapshot:
    """The cluster at one moment. A running job has a row for each node and kind of device it is on."""

    node_table: NodeTable
    pending: Array  # of PENDING, in no order
    running: Array  # of RUNNING
    jobs: Mapping[JobId, Job]  # those the rows speak of, and more
    shapes: Sequence[JobShape]  # by number
    share_tree: FairShareTree
    free: FreeResources  # by node: what nobody holds
    past_usage: Array  # by leaf: what counts of what it used, without what it holds now
    current_usage: Callable[[Array], Array]  # by running row: what counts of what it holds
    held_devices: Mapping[str, JobId]  # the devices that are in use as a whole, and by whom
    shared_device_use: Mapping[str, float] = field(
        default_factory=dict
    )  # those that are shared: how much of each is in use
    accounts: ShareAccounts = field(default_factory=ShareAccounts)
    reservations: tuple[Reservation, ...] = ()
    month_gpu_hours: Mapping[tuple[str, str], float] = field(
        default_factory=dict
    )  # GPU-hours of (scope, name) so far
    month_start: float = 0.0
    has_array_or_budget_limits: bool = (
        False  # whether an array or the budget of a class may hold back one of the pending jobs
    )
    next_begin_at: datetime | None = None  # when a job joins the pending ones though nothing happens

    @cached_property
    def has_preemptible(self) -> bool:
        """Whether anybody who runs might ever have to make room."""
        return bool((self.running["preemptible"] | self.running["overtime"]).any())

    @cached_property
    def largest_free(self) -> LargestFree:
        return LargestFree.from_free(self.node_table, self.free)

    @cached_property
    def usage_by_leaf(self) -> Array:
        """By leaf: what counts of its past, of what it holds now and of what that may still use."""
        if not len(self.running):
            return self.past_usage
        present = self.current_usage(self.running)
        return self.past_usage + np.bincount(self.running["leaf"], present, len(self.past_usage))


@dataclass(frozen=True, slots=True)
class PlannedStart:
    """A job that is to start, and where each of its tasks goes."""

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
    """A running job that is to make room."""

    job: Job
    kind: str  # "preempt": it goes back to the queue; "overtime": it ends
    message: str
    for_job_id: JobId


@dataclass(frozen=True, slots=True)
class BookedStart:
    """A job that is blocked, and for which room is kept."""

    job_id: JobId
    starts_at: (
        datetime  # when it starts at the latest, if limits are honest; of the second and later ones, about when
    )
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What to start and to stop now."""

    starts: tuple[PlannedStart, ...] = ()
    stops: tuple[PlannedStop, ...] = ()
    wake_at: datetime | None = None  # when to plan again even if nothing happens
    compute_booked_starts: Callable[[], tuple[BookedStart, ...]] = field(default=tuple, compare=False)

    @cached_property
    def booked_starts(self) -> tuple[BookedStart, ...]:
        """The first of the blocked. Where nobody could take their room, it is booked only when somebody asks."""
        return self.compute_booked_starts()
