"""Behaviour of a simulated job, set by its environment variables:

HELIOSTAT_SIMULATED_SECONDS      run time (default 60; `inf`: until it is stopped)
HELIOSTAT_SIMULATED_EXIT         exit code (default 0)
HELIOSTAT_SIMULATED_OOM          1: it ends because it ran out of memory
HELIOSTAT_SIMULATED_IGNORE_TERM  1: only KILL ends it
"""

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import EndCause, JobId

SECONDS_VARIABLE = "HELIOSTAT_SIMULATED_SECONDS"
EXIT_CODE_VARIABLE = "HELIOSTAT_SIMULATED_EXIT"
OOM_VARIABLE = "HELIOSTAT_SIMULATED_OOM"
IGNORE_TERM_VARIABLE = "HELIOSTAT_SIMULATED_IGNORE_TERM"

EXIT_TERMINATED = 128 + 15
EXIT_KILLED = 128 + 9


@dataclass(frozen=True, slots=True)
class SimulatedExit:
    """How a run ends, and how many seconds after its start."""

    after_seconds: float
    cause: EndCause
    exit_code: int | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class JobBehaviour:
    run_seconds: float = 60.0
    exit_code: int = 0
    runs_out_of_memory: bool = False
    ignores_term: bool = False

    @classmethod
    def from_environment(cls, env: Mapping[str, str]) -> "JobBehaviour":
        """Raises ValueError for invalid values."""
        seconds = float(env.get(SECONDS_VARIABLE, "60"))
        exit_code = int(env.get(EXIT_CODE_VARIABLE, "0"))
        if math.isnan(seconds) or seconds < 0:
            raise ValueError(f"{SECONDS_VARIABLE} is not a duration: {env[SECONDS_VARIABLE]}")
        if not 0 <= exit_code <= 255:
            raise ValueError(f"{EXIT_CODE_VARIABLE} is not an exit code: {env[EXIT_CODE_VARIABLE]}")
        return cls(seconds, exit_code, env.get(OOM_VARIABLE) == "1", env.get(IGNORE_TERM_VARIABLE) == "1")

    @classmethod
    def find_problem(cls, env: Mapping[str, str]) -> str | None:
        try:
            cls.from_environment(env)
        except ValueError as error:
            return str(error)
        return None

    def expected_exit(self, time_limit_seconds: float | None, grace_seconds: float) -> SimulatedExit:
        if time_limit_seconds is not None and self.run_seconds > time_limit_seconds:
            return self.exit_when_stopped(time_limit_seconds, grace_seconds, EndCause.TIMED_OUT)
        if self.runs_out_of_memory:
            return SimulatedExit(self.run_seconds, EndCause.OUT_OF_MEMORY, EXIT_KILLED)
        return SimulatedExit(self.run_seconds, EndCause.EXITED, self.exit_code)

    def exit_when_stopped(self, after_seconds: float, grace_seconds: float, cause: EndCause) -> SimulatedExit:
        """The exit after TERM at `after_seconds` and KILL after the grace time."""
        if not self.ignores_term:
            return SimulatedExit(after_seconds, cause, EXIT_TERMINATED)
        if self.run_seconds <= after_seconds + grace_seconds:
            return SimulatedExit(self.run_seconds, cause, self.exit_code)
        return SimulatedExit(after_seconds + grace_seconds, cause, EXIT_KILLED)


@dataclass(frozen=True, slots=True)
class UsageProfile:
    """How a simulated job uses its resources; the same for all attempts of a job."""

    cpu_utilisation: float  # fraction of its cpus that is busy on the plateau
    memory_utilisation: float  # fraction of its memory
    gpu_percent: float  # of each GPU that it uses
    uses_one_gpu: bool  # leaves its other GPUs idle
    period_seconds: float  # of the waves


def usage_profile_of(job_id: JobId) -> UsageProfile:
    """Of ten jobs, one is nearly idle, two wait for data, and seven are busy."""
    seed = zlib.crc32(f"job {job_id}".encode())
    kind = seed % 10
    busy = 0.55 + 0.35 * ((seed >> 4) % 100) / 100
    return UsageProfile(
        cpu_utilisation=0.02 if kind == 0 else 0.25 if kind <= 2 else busy,
        memory_utilisation=0.06 + 0.85 * ((seed >> 12) % 100 / 100) ** 1.5,
        gpu_percent=3.0 if kind == 0 else 38.0 if kind <= 2 else 84.0,
        uses_one_gpu=(seed >> 16) % 8 == 0,
        period_seconds=90 + (seed >> 6) % 300,
    )
