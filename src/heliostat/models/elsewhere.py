"""What an engine with a queue of its own says of it: why ours wait there, and which jobs are not ours."""

from dataclasses import dataclass
from datetime import datetime

from heliostat.models.jobs import Place


@dataclass(frozen=True, slots=True)
class Waiting:
    """Why an attempt does not go on, and when it will."""

    reason: str
    kind: str  # turn, room, nodes, quota, reservation, array, held, dependency, begin, suspended, away, other
    position: int | None = None  # 1: next; None: it has none, as long as it is held
    of: int | None = None  # how many wait there
    starts_at: datetime | None = None  # as the engine plans now
    source: str = ""  # whose plan that is


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
    places: tuple[Place, ...]  # its nodes, and the devices it has there as far as they are known
    submitted_at: datetime | None
    started_at: datetime | None
    time_limit_seconds: int | None
    act_with: str  # the command that ends it
