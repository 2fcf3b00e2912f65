"""The scheduling policy: queue order, priority classes and charge rates, for live queue, forecasts and replays."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from heliostat.models import Job, Resources
from heliostat.models.gpu_types import card_fraction, card_type

_HOUR = 3600.0
_MAX_SECONDS = 10 * 366 * 24 * _HOUR  # the longest time limit of a job


class QueueOrdering(StrEnum):
    FAIR_SHARE = "share"  # most priority points first: see queue_order
    FIFO = "fifo"  # oldest first
    SHORTEST_JOB_FIRST = "sjf"  # shortest limit first
    LEAST_ATTAINED_SERVICE = "las"  # the user with the least usage first


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """Each point counts like doubling the wait. Jobs of a higher rank may preempt preemptible jobs of a lower
    rank; rank 0 comes after all others in the queue."""

    name: str
    rank: int
    points: float = 0.0
    preemptible: bool = False  # all jobs of the class are
    gpu_hours_per_month: int | None = None  # per project


DEFAULT_PRIORITY_CLASSES: Mapping[str, PriorityClass] = MappingProxyType(
    {
        priority_class.name: priority_class
        for priority_class in (
            PriorityClass("scavenger", rank=0, preemptible=True),
            PriorityClass("normal", rank=1),
            PriorityClass("interactive", rank=2, points=4.0),
            PriorityClass("urgent", rank=3, points=20.0, gpu_hours_per_month=100),
        )
    }
)


@dataclass(frozen=True, slots=True)
class ChargeRates:
    """Charge for one hour of a resource in the fair share; one hour of a default GPU is 1."""

    gpus: Mapping[str, float] = field(default_factory=dict)  # by device type, in lower case
    gpu: float = 1.0  # of any other type
    cpu: float = 0.02
    memory_gib: float = 0.002

    def gpu_charge(self, gpu_type: str | None) -> float:
        """Charge for one hour of such a device. A MIG slice that is not listed costs its part of the card."""
        name = (gpu_type or "").lower()
        listed = self.gpus.get(name)
        return card_fraction(name) * self.gpus.get(card_type(name), self.gpu) if listed is None else listed

    def charge_per_second(self, requested: Resources, tasks: int = 1, gpu_type: str | None = None) -> float:
        """Charge for all resources of these tasks, in GPU-hours per second."""
        per_gpu = self.gpu_charge(gpu_type or requested.gpu_type)
        hour = requested.gpus * per_gpu + requested.cpus * self.cpu + requested.memory_mib / 1024 * self.memory_gib
        return tasks * hour / _HOUR


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """Weights are in priority points: each counts like doubling the wait."""

    order: QueueOrdering = QueueOrdering.FAIR_SHARE
    backfill: bool = True  # small jobs may start before a large blocked one
    backfill_reservations: int = 1  # number of blocked jobs with a booking
    half_life_seconds: float = 7 * 24 * _HOUR  # of past usage
    share_weight: float = 2.0  # points lost by having used exactly one share
    size_weight: float = 1.0  # points lost by requesting twice as many GPU-hours
    assumed_limit_seconds: float = 24 * _HOUR  # for jobs without a time limit
    overdue_seconds: float = 30 * 24 * _HOUR  # of waiting; longer waits are overdue: see queue_order
    overdue_fraction: float = 1 / 8  # of what a project uses: how much of it overdue jobs get first
    preempts: bool = True
    protection_seconds: float = 900.0  # run time without preemption after a first one; doubles each time
    classes: Mapping[str, PriorityClass] = field(default_factory=lambda: DEFAULT_PRIORITY_CLASSES)
    charges: ChargeRates = field(default_factory=ChargeRates)

    @property
    def max_advance_seconds(self) -> float:
        """How long running jobs and the jobs ahead in the queue are charged in advance at most. Small beside the
        half-life, so that loose time limits cost a project nothing of its share."""
        return self.half_life_seconds / 28  # 6 hours of a week

    @property
    def highest_unlimited_class(self) -> PriorityClass:
        """The highest class whose jobs have no budget: jobs of this class could arrive for ever."""
        return max(
            (known for known in self.classes.values() if known.gpu_hours_per_month is None),
            key=lambda known: known.rank,
        )

    def find_priority_class(self, name: str) -> PriorityClass:
        return self.classes.get(name) or self.classes["normal"]

    def protection_seconds_for(self, job: Job, started_at: float) -> float:
        """Seconds from its start during which the job may not be preempted. Doubles with each preemption, so that
        it eventually completes; not if it has saved a checkpoint in this run, because then little is lost."""
        if job.preemptions == 0:
            return 0.0
        has_saved = job.checkpointed_at is not None and job.checkpointed_at.timestamp() > started_at
        times = 1 if has_saved else 2.0 ** min(job.preemptions - 1, 40)
        return min(self.protection_seconds * times, _MAX_SECONDS)


POLICY_PRESETS: Mapping[str, SchedulingPolicy] = MappingProxyType(
    {
        "fifo": SchedulingPolicy(order=QueueOrdering.FIFO, backfill=False, preempts=False),
        "easy": SchedulingPolicy(order=QueueOrdering.FIFO, preempts=False),
        "sjf": SchedulingPolicy(order=QueueOrdering.SHORTEST_JOB_FIRST, preempts=False),
        "las": SchedulingPolicy(order=QueueOrdering.LEAST_ATTAINED_SERVICE, preempts=False),
        "fairshare": SchedulingPolicy(),
    }
)
