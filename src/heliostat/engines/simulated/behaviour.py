"""What a simulated job does, as its environment says:

HELIOSTAT_SIMULATED_SECONDS      how long it runs if left alone (60; `inf`: until it is stopped)
HELIOSTAT_SIMULATED_EXIT         its exit code (0)
HELIOSTAT_SIMULATED_OOM          1: it ends because memory ran out
HELIOSTAT_SIMULATED_IGNORE_TERM  1: only KILL ends it
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import Cause, JobId

SECONDS = "HELIOSTAT_SIMULATED_SECONDS"
EXIT = "HELIOSTAT_SIMULATED_EXIT"
OOM = "HELIOSTAT_SIMULATED_OOM"
IGNORE_TERM = "HELIOSTAT_SIMULATED_IGNORE_TERM"

TERMINATED = 128 + 15
KILLED = 128 + 9


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ends, and how long after its start."""

    seconds: float
    cause: Cause
    exit_code: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class Behaviour:
    """What a simulated job does, as its environment says."""

    seconds: float = 60.0
    exit_code: int = 0
    runs_out_of_memory: bool = False
    ignores_term: bool = False

    @classmethod
    def of(cls, env: Mapping[str, str]) -> "Behaviour":
        """Raises ValueError for what cannot be read."""
        seconds = float(env.get(SECONDS, "60"))
        exit_code = int(env.get(EXIT, "0"))
        if math.isnan(seconds) or seconds < 0:
            raise ValueError(f"{SECONDS} is not a duration: {env[SECONDS]}")
        if not 0 <= exit_code <= 255:
            raise ValueError(f"{EXIT} is not an exit code: {env[EXIT]}")
        return cls(seconds, exit_code, env.get(OOM) == "1", env.get(IGNORE_TERM) == "1")

    @classmethod
    def problem(cls, env: Mapping[str, str]) -> str | None:
        try:
            cls.of(env)
        except ValueError as error:
            return str(error)
        return None

    def ending(self, time_limit_seconds: float | None, grace_seconds: float) -> Ending:
        if time_limit_seconds is not None and self.seconds > time_limit_seconds:
            return self.stopped(time_limit_seconds, grace_seconds, Cause.TIMED_OUT)
        if self.runs_out_of_memory:
            return Ending(self.seconds, Cause.OUT_OF_MEMORY, KILLED)
        return Ending(self.seconds, Cause.EXITED, self.exit_code)

    def stopped(self, after_seconds: float, grace_seconds: float, cause: Cause) -> Ending:
        """What TERM after so long, and KILL after the grace, make of it."""
        if not self.ignores_term:
            return Ending(after_seconds, cause, TERMINATED)
        if self.seconds <= after_seconds + grace_seconds:
            return Ending(self.seconds, cause, self.exit_code)
        return Ending(after_seconds + grace_seconds, cause, KILLED)


@dataclass(frozen=True, slots=True)
class Habits:
    """How a made-up job treats what it was given: the same for the same job, whichever attempt it is."""

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
