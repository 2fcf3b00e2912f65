"""Past jobs of another system, as they are read from what it prints."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from heliostat.models import AttemptUsage, JobState


@dataclass(frozen=True, slots=True)
class PastJob:
    """A job that is over; sizes are those of all its nodes together."""

    cluster: str
    number: str  # 12, 12_3 of an array, 12+1 of one that was made of several
    user: str
    account: str
    name: str
    state: JobState
    reason: str | None
    exit_code: int | None
    submitted_at: datetime
    started_at: datetime | None  # None: it never ran
    ended_at: datetime
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str | None
    nodes: tuple[str, ...]
    time_limit_seconds: int | None
    qos: str
    usage: AttemptUsage | None = None


class HistoryReader(Protocol):
    """Reads lines of one file or one call; counts what it leaves out."""

    @property
    def left_out(self) -> Mapping[str, int]: ...

    def jobs(self, lines: Iterable[str]) -> Iterator[PastJob]:
        """In the order of the lines. Raises Invalid when the first of them does not name the fields needed."""
