"""Nodes or devices set aside for a time: a course on Thursday, a deadline week, maintenance."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

_WEEK = timedelta(weeks=1)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Kept for a project; without one for nobody, which is a maintenance window."""

    name: str
    nodes: tuple[str, ...]
    starts_at: datetime
    ends_at: datetime
    project: str | None = None
    gpus_per_node: int | None = None  # None: whole nodes
    weeks: int = 1  # how many weeks in a row it takes place
    reason: str = ""

    @property
    def is_over_at(self) -> datetime:
        """When the last of its weeks has ended."""
        return self.ends_at + (self.weeks - 1) * _WEEK

    def occurrences(self, after: datetime) -> Iterator[tuple[datetime, datetime]]:
        """From when to when it holds: those not over by then, in order."""
        for week in range(self.weeks):
            starts_at, ends_at = self.starts_at + week * _WEEK, self.ends_at + week * _WEEK
            if ends_at > after:
                yield starts_at, ends_at

    def overlaps(self, other: "Reservation") -> bool:
        """Is there a moment at which both hold?"""
        if self.is_over_at <= other.starts_at or other.is_over_at <= self.starts_at:
            return False
        theirs = list(other.occurrences(self.starts_at))
        return any(
            starts_at < their_end and their_start < ends_at
            for starts_at, ends_at in self.occurrences(other.starts_at)
            for their_start, their_end in theirs
        )

    def holds_at(self, moment: datetime) -> bool:
        return any(starts_at <= moment < ends_at for starts_at, ends_at in self.occurrences(moment))
