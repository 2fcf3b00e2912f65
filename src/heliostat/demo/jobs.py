"""A synthetic job: its request, its simulated behaviour and, in the history, its outcome."""

from dataclasses import dataclass
from datetime import datetime

from heliostat.engines.simulated import engine
from heliostat.models import EndCause, JobRequest, JobSpec, JobState, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoJob:
    submitted_at: datetime
    user: str
    project: str
    name: str
    command: tuple[str, ...]
    resources: Resources
    time_limit_seconds: int
    run_seconds: float  # unless it is stopped earlier
    exit_code: int | None = 0  # unless it is stopped; of a finished job, its actual exit code
    out_of_memory: bool = False
    cancel_after_seconds: float | None = None  # after its submission; None: not cancelled
    array_key: str | None = None  # the same for all jobs submitted as one array
    array_index: int | None = None

    # The outcome, set only in a generated history.
    state: JobState = JobState.PENDING
    cause: EndCause | None = None  # None: not finished, or cancelled before it started
    started_at: datetime | None = None
    ended_at: datetime | None = None
    node: str | None = None
    devices: tuple[str, ...] = ()

    def make_spec(self) -> JobSpec:
        """With the variables that control its behaviour in the simulated engine."""
        env = {
            engine.SECONDS_VARIABLE: f"{self.run_seconds:.3f}",
            engine.EXIT_CODE_VARIABLE: str(self.exit_code or 0),
        }
        if self.out_of_memory:
            env[engine.OOM_VARIABLE] = "1"
        return JobSpec(command=self.command, env=env)

    def make_request(self) -> JobRequest:
        """The submission of its user. Array elements are submitted one by one."""
        return JobRequest(
            spec=self.make_spec(),
            name=self.name,
            project=self.project,
            cpus=self.resources.cpus,
            memory_mib=self.resources.memory_mib,
            gpus=self.resources.gpus,
            gpu_type=self.resources.gpu_type,
            time_limit_seconds=self.time_limit_seconds,
        )
