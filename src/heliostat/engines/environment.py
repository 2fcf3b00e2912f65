"""What every payload finds in its environment, whichever engine runs it: pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import Attempt, Job

CHECKPOINT_FILE = "saved"
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Person:
    """The Unix user a payload runs as."""

    name: str
    uid: int
    gid: int
    home: str
    shell: str


@dataclass(frozen=True, slots=True)
class Surroundings:
    installation: str  # HELIOSTAT_HOME
    mark: str  # tells this attempt's processes from all others
    checkpoints: str  # a folder that outlives the attempt


def job_environment(
    attempt: Attempt, person: Person, around: Surroundings, devices: Mapping[str, str]
) -> dict[str, str]:
    """A clean environment: nothing of the server's own, what a login gives, and what the job should know."""
    job = attempt.job
    return {
        "HOME": person.home,
        "USER": person.name,
        "LOGNAME": person.name,
        "SHELL": person.shell,
        "PATH": DEFAULT_PATH,
        "LANG": "C.UTF-8",
        "HELIOSTAT_HOME": around.installation,
        "HELIOSTAT_JOB_ID": str(job.id),
        "HELIOSTAT_JOB_NAME": job.name,
        "HELIOSTAT_PROJECT": job.project,
        "HELIOSTAT_ATTEMPT": str(job.attempt),
        "HELIOSTAT_ATTEMPT_ID": attempt.id,
        "HELIOSTAT_MARK": around.mark,
        "HELIOSTAT_NODE": attempt.node,
        "HELIOSTAT_CPUS": str(job.resources.cpus),
        "HELIOSTAT_MEMORY_MIB": str(job.resources.memory_mib),
        "HELIOSTAT_GPUS": f"{job.resources.gpus:g}",
        "HELIOSTAT_CHECKPOINT_DIR": around.checkpoints,
        "HELIOSTAT_CHECKPOINT_FILE": f"{around.checkpoints}/{CHECKPOINT_FILE}",
        **devices,
        "OMP_NUM_THREADS": str(job.resources.cpus),
        **_array(job),
    }


def _array(job: Job) -> dict[str, str]:
    if job.array_id is None:
        return {}
    return {"HELIOSTAT_ARRAY_ID": str(job.array_id), "HELIOSTAT_ARRAY_INDEX": str(job.array_index)}
