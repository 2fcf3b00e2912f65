"""One made-up job: what is asked for, what it will do, and in history what became of it."""

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
    run_seconds: float  # if left alone
    exit_code: int | None = 0  # if left alone; of a job that is over, the one it had
    out_of_memory: bool = False
    cancel_after_seconds: float | None = None  # after its submission, by its user
    array_key: str | None = None  # the same for all jobs submitted as one array
    array_index: int | None = None

    # What became of it; only `history` fills these in.
    state: JobState = JobState.PENDING
    cause: EndCause | None = None  # None: it is not over, or was cancelled before it started
    started_at: datetime | None = None
    ended_at: datetime | None = None
    node: str | None = None
    devices: tuple[str, ...] = ()

    def make_spec(self) -> JobSpec:
        """What the simulated engine reads to make it run like this."""
        env = {
            engine.SECONDS_VARIABLE: f"{self.run_seconds:.3f}",
            engine.EXIT_CODE_VARIABLE: str(self.exit_code or 0),
        }
        if self.out_of_memory:
            env[engine.OOM_VARIABLE] = "1"
        return JobSpec(command=self.command, env=env)

    def make_request(self) -> JobRequest:
        """The submission its user would send. Array elements are sent one by one."""
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
