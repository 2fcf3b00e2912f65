"""An attempt in Slurm's hands, and what is to be done about it next: pure but for one file it looks at."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from heliostat.engines.slurm.machines import device_uuid
from heliostat.engines.slurm.parse import SlurmJob, seconds_of
from heliostat.engines.slurm.traces import Element
from heliostat.models import Attempt, AttemptId, Cause, JobState, Place, Started

_LEAST_PAUSE_SECONDS = 3.0  # less is the difference of two clocks


@dataclass(slots=True)
class Handed:
    attempt: Attempt
    receipt: str  # the file in which its script notes its life
    uid: int
    number: int | None = None  # in Slurm
    was_tried: bool = False  # Slurm may have it, though we know no number
    started: Started | None = None  # what was told
    waits: bool = False  # in Slurm, as of the newest look
    runs: bool = False
    is_suspended: bool = False
    paused_seconds: float = 0.0  # in which it was suspended since it started
    restarts: int = 0  # how often Slurm had requeued it when this attempt began to wait
    first: int | None = None  # the attempt it was submitted as, if that is another
    former: AttemptId | None = None  # whose end is told but not yet recorded: until then this one is not told
    stopped_as: Cause | None = None
    signals: list[str] = field(default_factory=list)  # to be sent when it can hear them
    heard: set[str] = field(default_factory=set)
    kill_at: float | None = None  # by the monotonic clock
    looks_in_vain: int = 0
    vain_since: float = math.inf  # the first of these looks, by the monotonic clock
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
        ran = (now - self.started.at).total_seconds() - self.paused_seconds
        return self.stopped_as is None and not self.is_suspended and ran >= limit

    def was_requeued(self, job: SlurmJob) -> bool:
        """Since this attempt began to wait. One that we stop is not put back: it is ended. While something of the
        former run is left, nobody can say whose the output is."""
        has_settled = not job.is_over and job.state != "COMPLETING"
        return job.place.restarts > self.restarts and self.stopped_as is None and has_settled

    def note_pause(self, job: SlurmJob, now: datetime) -> None:
        """Slurm's clock stands still while a job is suspended."""
        self.is_suspended = job.state == "SUSPENDED"
        used = seconds_of(job.place.used) if job.has_run and not job.is_over and job.started_at else None
        if used is not None and job.started_at is not None:
            paused = (now - job.started_at).total_seconds() - used
            self.paused_seconds = paused if paused > _LEAST_PAUSE_SECONDS else 0.0

    @property
    def hears_signals(self) -> bool:
        """Slurm says that a job runs a moment before there is a process of it; what is sent then is lost."""
        try:
            return os.stat(self.receipt, follow_symlinks=False).st_size > 0
        except OSError:
            return False


def next_attempt(attempt: Attempt) -> Attempt:
    """The one as which a requeued job waits."""
    number = attempt.job.attempt + 1
    job = replace(attempt.job, attempt=number, state=JobState.PENDING, handed_over=True)
    return Attempt(job.attempt_id, job, "")


def limit_set_in_slurm(attempt: Attempt, job: SlurmJob, minutes: int | None) -> tuple[int | None] | None:
    """The limit that somebody has given it with Slurm's own tools; None: nobody has. `minutes`: as we told Slurm.

    Of a job without a limit of ours nothing is said: it has that of its partition.
    """
    ours, limit = attempt.job.time_limit_seconds, seconds_of(job.place.limit)
    if job.standing is None or minutes is None or limit in (minutes * 60, ours):
        return None
    return (limit,)


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
