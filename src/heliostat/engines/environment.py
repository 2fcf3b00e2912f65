"""What every payload finds in its environment and where jobs of a workflow hand on files, on any engine: pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from heliostat.models import Attempt, Job, Mount
from heliostat.models.environments import OUR_SCRIPTS
from heliostat.models.images import ARCHIVE
from heliostat.models.workflows import WORKFLOW, Part

CHECKPOINT_FILE = "saved"
IMAGE_FILE = ".image"  # beside it: what the image of the newest attempt is
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"  # most are in /usr/bin

VALUES_FILE = ".output"  # in a job's folder: lines of KEY=VALUE


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


def environment_folder(installation: str, digest: str) -> str:
    """Where software that was built for jobs is found, on every node that sees the installation."""
    return f"{installation}/environments/ready/{digest}"


def own_software(job: Job, installation: str) -> str | None:
    """The folder of the environment this job runs in; None: the node's own software, or that of an image."""
    if job.environment is None or job.kind in OUR_SCRIPTS or job.spec.image is not None:
        return None
    return environment_folder(installation, job.environment)


def own_image(job: Job, installation: str) -> str | None:
    """The file of the image this job runs in, if it was built here."""
    if job.environment is None or job.spec.image is None:
        return None
    if job.spec.image.startswith("/"):
        return job.spec.image
    return f"{environment_folder(installation, job.environment)}/{ARCHIVE}"


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
        **_software(job, around.installation),
        **devices,
        "OMP_NUM_THREADS": str(job.resources.cpus),
        **_array(job),
        **workflow_variables(job, around.installation),
    }


def _software(job: Job, installation: str) -> dict[str, str]:
    folder = own_software(job, installation)
    if folder is None:
        return {}
    return {
        "PATH": f"{folder}/bin:{DEFAULT_PATH}",
        "VIRTUAL_ENV": folder,
        "HELIOSTAT_ENVIRONMENT": job.environment or "",
    }


def _array(job: Job) -> dict[str, str]:
    if job.array_id is None:
        return {}
    return {"HELIOSTAT_ARRAY_ID": str(job.array_id), "HELIOSTAT_ARRAY_INDEX": str(job.array_index)}


def workflow_part(job: Job) -> Part | None:
    return job.part if job.part is not None and job.part.of == WORKFLOW else None


def workflow_folder(installation: str, part: Part) -> str:
    return f"{installation}/workflows/{part.number}"


def own_folder(installation: str, part: Part) -> str:
    return f"{workflow_folder(installation, part)}/{part.key}"


def workflow_variables(job: Job, installation: str) -> dict[str, str]:
    part = workflow_part(job)
    if part is None:
        return {}
    return {
        "HELIOSTAT_WORKFLOW": str(part.number),
        "HELIOSTAT_WORKFLOW_DIR": workflow_folder(installation, part),
        "HELIOSTAT_OUTPUT_DIR": own_folder(installation, part),
        "HELIOSTAT_OUTPUT": f"{own_folder(installation, part)}/{VALUES_FILE}",
    }


def workflow_mounts(job: Job, installation: str) -> list[Mount]:
    """In a container: all to be read, its own to be written."""
    part = workflow_part(job)
    if part is None:
        return []
    shared, own = workflow_folder(installation, part), own_folder(installation, part)
    return [Mount(shared, shared, read_only=True), Mount(own, own)]
