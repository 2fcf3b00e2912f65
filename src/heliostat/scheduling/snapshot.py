"""What a decision is made from, and the decision. Plain data: no clock, no database, no network."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property

import numpy as np

from heliostat.models import Job, JobId, Place, Reservation
from heliostat.scheduling.accounts import Accounts
from heliostat.scheduling.columns import Array
from heliostat.scheduling.free import Free
from heliostat.scheduling.machines import Machines, Most
from heliostat.scheduling.shapes import Shape
from heliostat.scheduling.shares import Tree

PENDING = np.dtype(
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
RUNNING = np.dtype(
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

    machines: Machines
    pending: Array  # of PENDING, in no order
    running: Array  # of RUNNING
    jobs: Mapping[JobId, Job]  # those the rows speak of, and more
    shapes: Sequence[Shape]  # by number
    tree: Tree
    free: Free  # by node: what nobody holds
    past_usage: Array  # by leaf: what counts of what it used, without what it holds now
    present_usage: Callable[[Array], Array]  # by running row: what counts of what it holds
    held: Mapping[str, JobId]  # the devices that are in use as a whole, and by whom
    parts: Mapping[str, float] = field(default_factory=dict)  # those that are shared: how much of each is in use
    accounts: Accounts = field(default_factory=Accounts)
    reservations: tuple[Reservation, ...] = ()
    month: Mapping[tuple[str, str], float] = field(default_factory=dict)  # GPU-hours of (scope, name) so far
    month_began: float = 0.0
    others_matter: bool = False  # whether an array or the budget of a class may hold back one of the pending jobs
    next_begin: datetime | None = None  # when a job joins the pending ones though nothing happens

    @cached_property
    def may_send_away(self) -> bool:
        """Whether anybody who runs might ever have to make room."""
        return bool((self.running["preemptible"] | self.running["overtime"]).any())

    @cached_property
    def most_free(self) -> Most:
        return Most.of(self.machines, self.free)

    @cached_property
    def usage(self) -> Array:
        """By leaf: what counts of its past, of what it holds now and of what that may still use."""
        if not len(self.running):
            return self.past_usage
        present = self.present_usage(self.running)
        return self.past_usage + np.bincount(self.running["leaf"], present, len(self.past_usage))


@dataclass(frozen=True, slots=True)
class Start:
    """A job that is to start, and where each of its tasks goes."""

    job: Job
    places: tuple[Place, ...]
    gpu_type: str | None = None

    @property
    def node(self) -> str:
        return self.places[0].node

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(uuid for place in self.places for uuid in place.devices)


@dataclass(frozen=True, slots=True)
class Stop:
    """A running job that is to make room."""

    job: Job
    why: str  # "preempt": it goes back to the queue; "overtime": it ends
    words: str
    for_job: JobId


@dataclass(frozen=True, slots=True)
class Head:
    """A job that is blocked, and for which room is kept."""

    job: JobId
    at: datetime  # when it starts at the latest, if limits are honest; of the second and later ones, about when
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """What to start and to stop now."""

    starts: tuple[Start, ...] = ()
    stops: tuple[Stop, ...] = ()
    wake_at: datetime | None = None  # when to plan again even if nothing happens
    booked: Callable[[], tuple[Head, ...]] = field(default=tuple, compare=False)

    @cached_property
    def heads(self) -> tuple[Head, ...]:
        """The first of the blocked. Where nobody could take their room, it is booked only when somebody asks."""
        return self.booked()
