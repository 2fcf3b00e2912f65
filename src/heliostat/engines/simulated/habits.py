"""How a made-up job treats what it was given: the same for the same job, whichever attempt it is."""

import zlib
from dataclasses import dataclass

from heliostat.models import JobId


@dataclass(frozen=True, slots=True)
class Habits:
    cpus: float  # part of its cpus that it keeps busy on its plateau
    memory: float  # part of its memory that it needs
    load: float  # percent, of the GPUs it uses
    uses_one_gpu: bool  # of several: somebody who has not heard of data parallelism yet
    period_seconds: float  # of its waves


def habits_of(job_id: JobId) -> Habits:
    """One job in ten holds what it has and hardly uses it, two wait for their data, the rest are busy."""
    character = zlib.crc32(f"job {job_id}".encode())
    kind = character % 10
    busy = 0.55 + 0.35 * ((character >> 4) % 100) / 100
    return Habits(
        cpus=0.02 if kind == 0 else 0.25 if kind <= 2 else busy,
        memory=0.06 + 0.85 * ((character >> 12) % 100 / 100) ** 1.5,
        load=3.0 if kind == 0 else 38.0 if kind <= 2 else 84.0,
        uses_one_gpu=(character >> 16) % 8 == 0,
        period_seconds=90 + (character >> 6) % 300,
    )
