"""An attempt in Slurm's hands, and what is to be done about it next: pure but for one file it looks at."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from heliostat.engines.slurm.machines import device_uuid
from heliostat.engines.slurm.parse import SlurmJob
from heliostat.engines.slurm.traces import Element
from heliostat.models import Attempt, Cause, Place, Started


@dataclass(slots=True)
class Handed:
    attempt: Attempt
    begun: str  # the file its script writes to when it begins
    uid: int
    number: int | None = None  # in Slurm
    was_tried: bool = False  # Slurm may have it, though we know no number
    reason: str | None = None  # why it waits there
    started: Started | None = None  # what was told
    runs: bool = False
    stopped_as: Cause | None = None
    signals: list[str] = field(default_factory=list)  # to be sent when it can hear them
    heard: set[str] = field(default_factory=set)
    kill_at: float | None = None  # by the monotonic clock
    looks_in_vain: int = 0
    element: Element | None = None  # if it was submitted together with others

    def ask_to_stop(self, cause: Cause, signal: str, kill_at: float) -> None:
        """Of several wishes the first names the cause, the shortest grace counts, and each signal is sent once."""
        self.stopped_as = self.stopped_as or cause
        self.kill_at = kill_at if self.kill_at is None else min(self.kill_at, kill_at)
        if signal not in self.heard:
            self.heard.add(signal)
            self.signals.append(signal)

    def is_over_limit(self, now: datetime) -> bool:
        """Slurm counts in minutes; we count in seconds."""
        limit = self.attempt.job.time_limit_seconds
        if limit is None or self.attempt.job.overtime or self.started is None or not self.runs:
            return False
        return self.stopped_as is None and (now - self.started.at).total_seconds() >= limit

    @property
    def hears_signals(self) -> bool:
        """Slurm says that a job runs a moment before there is a process of it; what is sent then is lost."""
        try:
            return os.stat(self.begun, follow_symlinks=False).st_size > 0
        except OSError:
            return False


def start_of(
    attempt: Attempt,
    job: SlurmJob,
    devices: Mapping[str, tuple[int, ...]],
    types: Mapping[str, str],
    now: datetime,
) -> Started:
    """Its tasks lie on its nodes in blocks, and share the GPUs there evenly.

    `devices` are those it has on each node, `types` those of all devices by uuid.
    """
    tasks = attempt.job.placement.tasks
    nodes = job.nodes or ("",)
    where = [nodes[rank * len(nodes) // tasks] for rank in range(tasks)]
    places = tuple(
        Place(node, _part(node, devices.get(node, ()), where[:rank].count(node), where.count(node)))
        for rank, node in enumerate(where)
    )
    kinds = {types[uuid] for place in places for uuid in place.devices if uuid in types}
    kind = kinds.pop() if len(kinds) == 1 else None
    return Started(attempt.id, min(job.started_at or now, now), places, kind)


def _part(node: str, indexes: tuple[int, ...], number: int, of: int) -> tuple[str, ...]:
    """The share of one of several tasks on a node."""
    size = len(indexes) // of
    return tuple(device_uuid(node, index) for index in indexes[number * size : (number + 1) * size])
