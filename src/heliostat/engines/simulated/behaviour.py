"""What a simulated job does, as its environment says:

HELIOSTAT_SIMULATED_SECONDS      how long it runs if left alone (60; `inf`: until it is stopped)
HELIOSTAT_SIMULATED_EXIT         its exit code (0)
HELIOSTAT_SIMULATED_OOM          1: it ends because memory ran out
HELIOSTAT_SIMULATED_IGNORE_TERM  1: only KILL ends it
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import Cause

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
