"""How to choose between jobs: plain frozen data, the same for the live queue, forecasts and replays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from heliostat.models import Job, Resources

_HOUR = 3600.0
_LONGEST = 10 * 366 * 24 * _HOUR  # seconds: no job may ask for more


class QueueOrdering(StrEnum):
    """What comes first in the queue."""

    FAIR_SHARE = "share"  # most points first: for the wait, the class, a small job, a share not used up
    FIFO = "fifo"  # oldest first
    SHORTEST_JOB_FIRST = "sjf"  # shortest limit first
    LEAST_ATTAINED_SERVICE = "las"  # the user who has had least service first


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Its points count when the queue is ordered: each is worth waiting twice as long. Jobs of a higher rank may
    send away the preemptible ones of a lower rank; rank 0 waits behind everybody else."""

    name: str
    rank: int
    points: float = 0.0
    preemptible: bool = False  # every job of the class
    gpu_hours_per_month: int | None = None  # per project


DEFAULT_PRIORITY_CLASSES: Mapping[str, PriorityClass] = MappingProxyType(
    {
        made.name: made
        for made in (
            PriorityClass("scavenger", rank=0, preemptible=True),
            PriorityClass("normal", rank=1),
            PriorityClass("interactive", rank=2, points=4.0),
            PriorityClass("urgent", rank=3, points=20.0, gpu_hours_per_month=100),
        )
    }
)


@dataclass(frozen=True, slots=True)
class ChargeRates:
    """What an hour of a resource costs the fair share; an hour of an ordinary GPU is 1."""

    gpus: Mapping[str, float] = field(default_factory=dict)  # by device type, in lower case
    gpu: float = 1.0  # of any other type
    cpu: float = 0.02
    memory_gib: float = 0.002

    def charge_per_second(self, wanted: Resources, tasks: int = 1, gpu_type: str | None = None) -> float:
        """Of everything these tasks hold, in GPU-hours per second."""
        per_gpu = self.gpus.get((gpu_type or wanted.gpu_type or "").lower(), self.gpu)
        hour = wanted.gpus * per_gpu + wanted.cpus * self.cpu + wanted.memory_mib / 1024 * self.memory_gib
        return tasks * hour / _HOUR


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """How to choose. Weights are in points: each is worth waiting twice as long."""

    order: QueueOrdering = QueueOrdering.FAIR_SHARE
    backfill: bool = True  # may small jobs fill the holes before a large one that is blocked
    reservations: int = 1  # for how many blocked jobs room is kept
    half_life_seconds: float = 7 * 24 * _HOUR  # after which past usage counts half
    share_weight: float = 2.0  # what having used one share costs
    size_weight: float = 1.0  # what asking for twice as many GPU-hours costs
    assumed_limit_seconds: float = 24 * _HOUR  # of jobs without a time limit
    preempts: bool = True
    protection_seconds: float = 900.0  # for which one who was sent away once may run then; twice as long each time
    classes: Mapping[str, PriorityClass] = field(default_factory=lambda: DEFAULT_PRIORITY_CLASSES)
    charges: ChargeRates = field(default_factory=ChargeRates)

    def find_priority_class(self, name: str) -> PriorityClass:
        return self.classes.get(name) or self.classes["normal"]

    def protection_seconds_for(self, job: Job, started_at: float) -> float:
        """How many seconds from its start it may not be sent away. Each time it was, that is twice as long, so
        that it gets done however often others come; if it has saved its work in this run, little is lost."""
        if job.preemptions == 0:
            return 0.0
        has_saved = job.checkpointed_at is not None and job.checkpointed_at.timestamp() > started_at
        times = 1 if has_saved else 2.0 ** min(job.preemptions - 1, 40)
        return min(self.protection_seconds * times, _LONGEST)


POLICY_PRESETS: Mapping[str, SchedulingPolicy] = MappingProxyType(
    {
        "fifo": SchedulingPolicy(order=QueueOrdering.FIFO, backfill=False, preempts=False),
        "easy": SchedulingPolicy(order=QueueOrdering.FIFO, preempts=False),
        "sjf": SchedulingPolicy(order=QueueOrdering.SHORTEST_JOB_FIRST, preempts=False),
        "las": SchedulingPolicy(order=QueueOrdering.LEAST_ATTAINED_SERVICE, preempts=False),
        "fairshare": SchedulingPolicy(),
    }
)
